// A communicator of NCCL, and the thread that waits for it.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl-library.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/stream_executor/event.h"
#include "xla/stream_executor/stream.h"
#include "xla/stream_executor/stream_executor.h"

// What is reduced. It keeps the memory, which JavaScript may free at any time.
struct Reduction {
  std::vector<tensorflow::Tensor> from, to;
  // When TensorFlow's stream has computed the values, and no longer uses the memory of the results for
  // anything that was there before; null on the host.
  std::unique_ptr<stream_executor::Event> ready;
};

// How an operation has ended: well if there is no error.
struct Outcome {
  std::string error;
  bool timed_out = false;
};

// NCCL is called in a thread of its own, which may wait: JavaScript never does. Operations run one after
// the other, on a stream of the communicator, so that TensorFlow's stream does not stop when another rank
// is late or gone. The communicator is "non-blocking": each of its calls returns at once, and can be given
// up by the deadline. After the first error it is aborted, and fails all that follows.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  using Clock = std::chrono::steady_clock;

  struct Task {
    std::unique_ptr<Reduction> reduction;
    int op;
    std::chrono::milliseconds timeout;
    std::function<void(Outcome)> done;
  };

  struct Membership {
    nccl::UniqueId id;
    int rank, size;
    std::chrono::milliseconds timeout;
  };

  // `compute`: TensorFlow's stream, null on the host.
  Communicator(const nccl::Library& library, stream_executor::Stream* compute, Membership membership)
      : library_(library), compute_(compute), membership_(membership) {}

  void Start() {
    std::thread([self = shared_from_this()] { self->Run(); }).detach();
  }

  void Submit(Task task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  // Gives up what is under way.
  void Stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  void WaitForEnd(std::chrono::milliseconds longest) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, longest, [this] { return has_ended_; });
  }

 private:
  using Stream = stream_executor::Stream;
  using Event = stream_executor::Event;

  void Run() {
    // NCCL takes the GPU that is current in the thread.
    const auto active = compute_ == nullptr ? nullptr : compute_->parent()->Activate();
    Outcome failure = Open();
    if (!failure.error.empty()) Abort();
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return is_stopped_ || !tasks_.empty(); });
      if (tasks_.empty()) break;
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      const bool is_first = failure.error.empty();
      if (is_first) failure = Reduce(*task.reduction, task.op, Clock::now() + task.timeout);
      if (failure.error.empty()) task.reduction.reset();
      task.done(failure);
      // An abort may take long, and until then the memory is in use.
      if (is_first && !failure.error.empty()) Abort();
    }
    Abort();
    own_.reset();
    const std::lock_guard<std::mutex> lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }

  Outcome Open() {
    if (compute_ != nullptr) {
      auto stream = compute_->parent()->CreateStream();
      if (!stream.ok()) return {std::string(stream.status().message())};
      own_ = std::move(stream).value();
    }
    nccl::Config config;
    const int result = library_.comm_init_rank_config(&comm_, membership_.size, membership_.id, membership_.rank, &config);
    if (!IsStarted(result)) return Failure(result);
    return Await(Clock::now() + membership_.timeout, [] { return true; });
  }

  Outcome Reduce(Reduction& reduction, int op, Clock::time_point deadline) {
    void* stream = nullptr;
    std::unique_ptr<Event> end;
    if (own_ != nullptr) {
      const auto ordered = own_->WaitFor(reduction.ready.get());
      if (!ordered.ok()) return {std::string(ordered.message())};
      auto event = own_->parent()->CreateEvent();
      if (!event.ok()) return {std::string(event.status().message())};
      end = std::move(event).value();
      stream = own_->platform_specific_handle().stream;
    }
    int result = library_.group_start();
    for (size_t i = 0; i < reduction.from.size() && IsStarted(result); i++) {
      const auto& from = reduction.from[i];
      result = library_.all_reduce(from.data(), reduction.to[i].data(), from.NumElements(), nccl::kFloat32, op, comm_, stream);
    }
    const int ended = library_.group_end();
    if (!IsStarted(result)) return Failure(result);
    if (!IsStarted(ended)) return Failure(ended);
    // Only then is the operation on the stream.
    Outcome outcome = Await(deadline, [] { return true; });
    if (!outcome.error.empty() || own_ == nullptr) return outcome;
    const auto recorded = own_->RecordEvent(end.get());
    if (!recorded.ok()) return {std::string(recorded.message())};
    outcome = Await(deadline, [&end] { return end->PollForStatus() != Event::Status::kPending; });
    if (outcome.error.empty() && end->PollForStatus() != Event::Status::kComplete) return {"the GPU has failed"};
    return outcome;
  }

  // Waits until NCCL has done what it was asked for and `is_done`, or until the deadline.
  template <typename Condition>
  Outcome Await(Clock::time_point deadline, Condition is_done) {
    for (int turn = 0;; turn++) {
      int state = nccl::kSuccess;
      const int result = library_.comm_get_async_error(comm_, &state);
      if (result != nccl::kSuccess) return Failure(result);
      if (!IsStarted(state)) return Failure(state);
      if (state == nccl::kSuccess && is_done()) return {};
      if (is_stopped_) return {"the communicator was closed"};
      if (Clock::now() > deadline) return {"the time-out has ended", true};
      // Large ones take milliseconds, in which the core may be needed.
      std::this_thread::sleep_for(std::chrono::microseconds(turn < 100 ? 10 : 200));
    }
  }

  static bool IsStarted(int result) { return result == nccl::kSuccess || result == nccl::kInProgress; }

  Outcome Failure(int result) const {
    std::string error = library_.get_error_string(result);
    const char* last = library_.get_last_error(comm_);
    if (last != nullptr && *last != '\0') error += std::string(" (") + last + ")";
    return {error};
  }

  // Works on this rank alone, unlike ncclCommDestroy, which may wait for ranks that are gone.
  void Abort() {
    if (comm_ != nullptr) library_.comm_abort(comm_);
    comm_ = nullptr;
    // The aborted operation may still be leaving the GPU.
    if (own_ != nullptr) own_->BlockHostUntilDone().IgnoreError();
  }

  const nccl::Library& library_;
  Stream* const compute_;
  const Membership membership_;
  nccl::Comm comm_ = nullptr;
  std::unique_ptr<Stream> own_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::atomic<bool> is_stopped_{false};
  bool has_ended_ = false;
};
