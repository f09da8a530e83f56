// Adds `collectives` to the binding: collectives of NCCL on the memory of float32 tensors on a GPU.
#include <node_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "call.h"
#include "communicator.h"
#include "tensorflow/core/framework/device.h"

namespace {

std::optional<nccl::Library> loaded;

const nccl::Library& Loaded() {
  if (!loaded.has_value()) throw std::runtime_error("NCCL is not loaded");
  return *loaded;
}

// The device of a tensor, null on the host, and its memory.
struct Located {
  tensorflow::TensorHandle* handle;
  tensorflow::Device* device;
  // TensorFlow's stream for computations; null on the host.
  stream_executor::Stream* stream;
  const tensorflow::Tensor* tensor;
};

Located Locate(const Call& call, size_t i) {
  auto* handle = tensorflow::TensorHandleFromInterface(tensorflow::unwrap(call.Handle(i)));
  tensorflow::Device* device = handle->device();
  const auto* info = device == nullptr ? nullptr : device->tensorflow_accelerator_device_info();
  auto* stream = info == nullptr ? nullptr : info->stream;
  const tensorflow::Tensor* tensor = nullptr;
  if (Loaded().takes_host_memory) {
    Check(device == nullptr, "tensors of the CPU for this library");
  } else {
    Check(stream != nullptr, "tensors of a GPU for NCCL");
  }
  Check(handle->Tensor(&tensor).ok() && tensor->dtype() == tensorflow::DT_FLOAT, "float32");
  return {handle, device, stream, tensor};
}

napi_value Text(const Call& call, const std::string& text) {
  napi_value value;
  napi_create_string_utf8(call.env(), text.data(), text.size(), &value);
  return value;
}

std::string TextOf(const Call& call, size_t argument) {
  size_t length = 0;
  Check(napi_get_value_string_utf8(call.env(), call.argument(argument), nullptr, 0, &length) == napi_ok, "a text");
  std::string text(length + 1, '\0');
  napi_get_value_string_utf8(call.env(), call.argument(argument), text.data(), text.size(), &length);
  text.resize(length);
  return text;
}

std::chrono::milliseconds Milliseconds(const Call& call, size_t argument) {
  // A century is as good as for ever, and far from the end of the clock.
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(call.Number(argument), 3e12)));
}

// An object of JavaScript that holds one of ours.
template <typename T>
T& Held(const Call& call, size_t argument) {
  void* object = nullptr;
  Check(napi_get_value_external(call.env(), call.argument(argument), &object) == napi_ok, "an object of the binding");
  return *static_cast<T*>(object);
}

// load([], path) -> the version of the library, as a number
napi_value LoadLibrary(Call& call) {
  // Threads of JavaScript may do so at the same time.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!loaded.has_value()) loaded = nccl::Load(TextOf(call, 1).c_str());
  int version = 0;
  loaded->get_version(&version);
  napi_value value;
  napi_create_int32(call.env(), version, &value);
  return value;
}

// device([tensor]) -> the address of its GPU on the bus of this host; on the host nothing
napi_value DeviceOf(Call& call) {
  const auto* stream = Locate(call, 0).stream;
  return Text(call, stream == nullptr ? "" : stream->parent()->GetDeviceDescription().pci_bus_id());
}

// uniqueId([], target): writes what the ranks of a communicator need to find one another
napi_value WriteUniqueId(Call& call) {
  nccl::UniqueId id;
  const int result = Loaded().get_unique_id(&id);
  if (result != nccl::kSuccess) throw std::runtime_error(Loaded().get_error_string(result));
  std::memcpy(call.Bytes(1, sizeof id), &id, sizeof id);
  return call.argument(1);
}

// Ends a communicator with the process, or with the object that holds it.
struct Holder {
  explicit Holder(std::shared_ptr<Communicator> one) : communicator(std::move(one)) {}

  std::shared_ptr<Communicator> communicator;

  static void AtExit(void* data) {
    auto& communicator = *static_cast<Holder*>(data)->communicator;
    communicator.Stop();
    communicator.WaitForEnd(std::chrono::seconds(5));
  }

  static void Finalize(napi_env env, void* data, void*) {
    std::unique_ptr<Holder> holder(static_cast<Holder*>(data));
    napi_remove_env_cleanup_hook(env, AtExit, data);
    holder->communicator->Stop();
  }
};

// open([tensor], id, rank, size, milliseconds) -> a communicator for tensors where this one is. Its first
// operation fails if the ranks have not found one another by then.
napi_value Open(Call& call) {
  Communicator::Membership membership;
  std::memcpy(&membership.id, call.Bytes(1, sizeof membership.id), sizeof membership.id);
  membership.rank = static_cast<int>(call.Number(2));
  membership.size = static_cast<int>(call.Number(3));
  membership.timeout = Milliseconds(call, 4);
  auto holder = std::make_unique<Holder>(std::make_shared<Communicator>(Loaded(), Locate(call, 0).stream, membership));
  napi_value value;
  if (napi_create_external(call.env(), holder.get(), Holder::Finalize, nullptr, &value) != napi_ok) {
    throw std::bad_alloc();
  }
  napi_add_env_cleanup_hook(call.env(), Holder::AtExit, holder.get());
  holder.release()->communicator->Start();
  return value;
}

// close([], communicator): what is under way fails
napi_value Close(Call& call) {
  Held<Holder>(call, 1).communicator->Stop();
  return call.argument(1);
}

using Prepared = std::unique_ptr<Reduction>;

// prepare(tensors) -> [reduction, the tensors of the results]. The values are those that TensorFlow has been
// told to compute until now.
napi_value Prepare(Call& call) {
  auto reduction = std::make_unique<Reduction>();
  stream_executor::Stream* stream = nullptr;
  for (size_t i = 0; i < call.count(); i++) {
    const Located from = Locate(call, i);
    const auto& shape = from.tensor->shape();
    auto* allocator = from.device == nullptr ? tensorflow::cpu_allocator() : from.device->GetAllocator({});
    tensorflow::Tensor to(allocator, tensorflow::DT_FLOAT, shape);
    if (!to.IsInitialized()) throw std::bad_alloc();
    reduction->from.push_back(*from.tensor);
    reduction->to.push_back(to);
    call.Add(from.device == nullptr ? tensorflow::TensorHandle::CreateLocalHandle(to)
                                    : tensorflow::TensorHandle::CreateLocalHandle(
                                          std::move(to), from.device, from.device, from.handle->ctx_));
    stream = from.stream;
  }
  if (stream != nullptr) {
    auto event = stream->parent()->CreateEvent();
    if (!event.ok() || !stream->RecordEvent(event->get()).ok()) throw std::runtime_error("the GPU takes no event");
    reduction->ready = std::move(event).value();
  }
  napi_value value, pair;
  auto holder = std::make_unique<Prepared>(std::move(reduction));
  const auto finalize = [](napi_env, void* data, void*) { delete static_cast<Prepared*>(data); };
  if (napi_create_external(call.env(), holder.get(), finalize, nullptr, &value) != napi_ok) throw std::bad_alloc();
  holder.release();
  napi_create_array_with_length(call.env(), 2, &pair);
  napi_set_element(call.env(), pair, 0, value);
  napi_set_element(call.env(), pair, 1, call.Results());
  return pair;
}

// release([], reduction): one that is not going to be made
napi_value Release(Call& call) {
  Held<Prepared>(call, 1).reset();
  return call.argument(1);
}

// Calls back in the thread of JavaScript: done(error, timedOut), both undefined at a good end.
void CallDone(napi_env env, napi_value done, void*, void* data) {
  const std::unique_ptr<Outcome> outcome(static_cast<Outcome*>(data));
  if (env == nullptr) return;
  napi_value self, arguments[2];
  napi_get_undefined(env, &self);
  size_t count = 0;
  if (!outcome->error.empty()) {
    napi_create_string_utf8(env, outcome->error.data(), outcome->error.size(), &arguments[0]);
    napi_get_boolean(env, outcome->timed_out, &arguments[1]);
    count = 2;
  }
  napi_call_function(env, self, done, count, arguments, nullptr);
}

// allReduce([], communicator, reduction, operation, milliseconds, done)
napi_value AllReduce(Call& call) {
  Prepared& prepared = Held<Prepared>(call, 2);
  Check(prepared != nullptr, "a reduction once");
  const int op = static_cast<int>(call.Number(3));
  Check(op >= nccl::kSum && op <= nccl::kAvg, "an operation of NCCL");
  const auto timeout = Milliseconds(call, 4);
  napi_threadsafe_function done;
  napi_value name = Text(call, "tsrun collectives");
  // While it is there, the process waits for the end of the operation.
  Check(napi_create_threadsafe_function(call.env(), call.argument(5), nullptr, name, 0, 1, nullptr, nullptr, nullptr,
                                        CallDone, &done) == napi_ok, "a function that is called at the end");
  Held<Holder>(call, 1).communicator->Submit({std::move(prepared), op, timeout, [done](Outcome outcome) {
    auto data = std::make_unique<Outcome>(std::move(outcome));
    if (napi_call_threadsafe_function(done, data.get(), napi_tsfn_blocking) == napi_ok) data.release();
    napi_release_threadsafe_function(done, napi_tsfn_release);
  }});
  return call.argument(1);
}

}  // namespace

void DefineCollectives(napi_env env, napi_value exports) {
  Define(env, exports, "collectives",
         {
             {"load", Guarded<LoadLibrary>},
             {"device", Guarded<DeviceOf>},
             {"uniqueId", Guarded<WriteUniqueId>},
             {"open", Guarded<Open>},
             {"close", Guarded<Close>},
             {"prepare", Guarded<Prepare>},
             {"release", Guarded<Release>},
             {"allReduce", Guarded<AllReduce>},
         });
}
