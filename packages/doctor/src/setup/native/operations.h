// Operations of TensorFlow for the CPU with our kernels. Unlike the functions of the binding, they can be nodes of a
// TensorFlow function.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "load.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace operations {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::TensorShape;

// The arguments and results of an operation while it runs.
class Run {
 public:
  explicit Run(OpKernelContext* context) : context_(context) {}

  const TensorShape& Shape(int i) const { return context_->input(i).shape(); }
  int64_t Size(int i) const { return context_->input(i).NumElements(); }
  const float* In(int i) const { return static_cast<const float*>(context_->input(i).data()); }

  // Checks the shapes of the arguments.
  bool Expect(bool fits) {
    if (!fits) context_->SetStatus(absl::InvalidArgumentError("tensors whose shapes do not fit one another"));
    return fits;
  }

  // Allocates a result. Returns nullptr and fails if there is no memory.
  float* Out(int i, const TensorShape& shape) {
    tensorflow::Tensor* tensor = nullptr;
    const absl::Status status = context_->allocate_output(i, shape, &tensor);
    if (status.ok()) return static_cast<float*>(tensor->data());
    context_->SetStatus(status);
    return nullptr;
  }
  bool Ok() const { return context_->status().ok(); }

  // Calls part(first, last) for parts of [0, count), which run in parallel if TensorFlow has several threads.
  // `cost`: about the cycles for one of `count`
  template <typename F>
  void ForParts(int64_t count, int64_t cost, F&& part) const {
    context_->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(count, cost, std::forward<F>(part));
  }

 private:
  OpKernelContext* const context_;
};

// Rows whose gradients are summed together, so that sums do not depend on the number of threads.
constexpr int64_t kRows = 64;

class Normalize : public OpKernel {
 public:
  explicit Normalize(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(context, context->GetAttr("centers", &centers_));
  }

  void Compute(OpKernelContext* context) override {
    Run run(context);
    const int64_t width = run.Size(1);
    if (!run.Expect(width > 0 && run.Size(2) == width && run.Size(0) % width == 0)) return;
    const int64_t rows = run.Size(0) / width;
    float *const y = run.Out(0, run.Shape(0)), *const statistics = run.Out(1, {rows, 2});
    if (!run.Ok()) return;
    run.ForParts(rows, 4 * width, [&](int64_t first, int64_t last) {
      const int64_t at = first * width;
      FindKernels()->normalize(last - first, width, epsilon_, centers_, run.In(0) + at, run.In(1), run.In(2),
                               statistics + 2 * first, y + at);
    });
  }

 private:
  float epsilon_;
  bool centers_;
};

class NormalizeGradient : public OpKernel {
 public:
  explicit NormalizeGradient(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("centers", &centers_));
  }

  void Compute(OpKernelContext* context) override {
    Run run(context);
    const int64_t width = run.Size(2);
    if (!run.Expect(width > 0 && run.Size(0) == run.Size(1) && run.Size(0) % width == 0)) return;
    const int64_t rows = run.Size(0) / width;
    if (!run.Expect(run.Size(3) == 2 * rows)) return;
    float *const dx = run.Out(0, run.Shape(1)), *const scale = run.Out(1, {width}), *const shift = run.Out(2, {width});
    if (!run.Ok()) return;
    const int64_t blocks = (rows + kRows - 1) / kRows;
    std::vector<float> sums(2 * width * blocks);
    run.ForParts(blocks, 4 * kRows * width, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; block++) {
        const int64_t row = block * kRows, at = row * width;
        FindKernels()->normalize_gradient(std::min(kRows, rows - row), width, centers_, run.In(0) + at, run.In(1) + at,
                                          run.In(2), run.In(3) + 2 * row, dx + at, &sums[2 * width * block]);
      }
    });
    std::fill(scale, scale + width, 0.0f);
    std::fill(shift, shift + width, 0.0f);
    for (size_t at = 0; at < sums.size(); at += 2 * width) {
      for (int64_t i = 0; i < width; i++) scale[i] += sums[at + i];
      for (int64_t i = 0; i < width; i++) shift[i] += sums[at + width + i];
    }
  }

 private:
  bool centers_;
};

class Gate : public OpKernel {
 public:
  explicit Gate(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("linear", &linear_));
    OP_REQUIRES_OK(context, context->GetAttr("cubic", &cubic_));
  }

  void Compute(OpKernelContext* context) override {
    Run run(context);
    float *const y = run.Out(0, run.Shape(0)), *const slope = run.Out(1, run.Shape(0));
    if (!run.Ok()) return;
    run.ForParts(run.Size(0), 4, [&](int64_t first, int64_t last) {
      FindKernels()->gate(last - first, linear_, cubic_, run.In(0) + first, y + first, slope + first);
    });
  }

 private:
  float linear_, cubic_;
};

class CrossEntropy : public OpKernel {
 public:
  explicit CrossEntropy(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("weight", &weight_));
  }

  void Compute(OpKernelContext* context) override {
    Run run(context);
    const TensorShape& shape = run.Shape(0);
    if (!run.Expect(shape.dims() == 2 && shape.dim_size(0) == run.Size(1))) return;
    const int64_t rows = shape.dim_size(0), classes = shape.dim_size(1);
    const auto* const labels = static_cast<const int32_t*>(context->input(1).data());
    for (int64_t row = 0; row < rows; row++) {
      OP_REQUIRES(context, labels[row] >= 0 && labels[row] < classes,
                  absl::InvalidArgumentError("labels of classes that are not there"));
    }
    float *const losses = run.Out(0, {rows}), *const gradient = run.Out(1, shape);
    if (!run.Ok()) return;
    run.ForParts(rows, 8 * classes, [&](int64_t first, int64_t last) {
      const int64_t at = first * classes;
      FindKernels()->cross_entropy(last - first, classes, weight_, run.In(0) + at, labels + first, losses + first,
                                   gradient + at);
    });
  }

 private:
  float weight_;
};

class Attention : public OpKernel {
 public:
  explicit Attention(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("size", &size_));
  }

  void Compute(OpKernelContext* context) override {
    Run run(context);
    const Heads heads = HeadsOf(run);
    if (!run.Ok()) return;
    const int64_t batch = run.Shape(0).dim_size(0);
    float* const out = run.Out(0, {batch, heads.length, heads.count * heads.size});
    float* const statistics = run.Out(1, {batch, heads.count, heads.length, 2});
    if (!run.Ok()) return;
    run.ForParts(batch * heads.count, Cost(heads), [&](int64_t first, int64_t last) {
      FindKernels()->attention(heads, first, last, run.In(0), statistics, out);
    });
  }

 protected:
  // The heads of rows [batch, length, 3 x count x size].
  Heads HeadsOf(Run& run) const {
    const TensorShape& shape = run.Shape(0);
    if (!run.Expect(size_ > 0 && shape.dims() == 3 && shape.dim_size(2) % (3 * size_) == 0)) return {};
    return {shape.dim_size(1), size_, shape.dim_size(2) / 3 / size_};
  }
  // About the cycles for the products of a head.
  static int64_t Cost(Heads heads) { return heads.length * heads.length * heads.size / 4; }

 private:
  int64_t size_;
};

class AttentionGradient : public Attention {
 public:
  using Attention::Attention;

  void Compute(OpKernelContext* context) override {
    Run run(context);
    const Heads heads = HeadsOf(run);
    if (!run.Ok() || !run.Expect(3 * run.Size(2) == run.Size(0))) return;
    const int64_t count = run.Shape(0).dim_size(0) * heads.count;
    if (!run.Expect(run.Size(1) == 2 * count * heads.length)) return;
    float* const gradient = run.Out(0, run.Shape(0));
    if (!run.Ok()) return;
    run.ForParts(count, 3 * Cost(heads), [&](int64_t first, int64_t last) {
      FindKernels()->attention_gradient(heads, first, last, run.In(0), run.In(1), run.In(2), gradient);
    });
  }
};

#define TSRUN_OPERATION(name, kernel, signature) \
  REGISTER_OP(name) signature.SetShapeFn(tensorflow::shape_inference::UnknownShape); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), kernel)

TSRUN_OPERATION("TsrunNormalize", Normalize,
                .Attr("epsilon: float").Attr("centers: bool").Input("x: float").Input("scale: float")
                .Input("shift: float").Output("y: float").Output("statistics: float"));
TSRUN_OPERATION("TsrunNormalizeGradient", NormalizeGradient,
                .Attr("centers: bool").Input("dy: float").Input("x: float").Input("scale: float")
                .Input("statistics: float").Output("dx: float").Output("dscale: float").Output("dshift: float"));
TSRUN_OPERATION("TsrunGate", Gate,
                .Attr("linear: float").Attr("cubic: float").Input("x: float").Output("y: float")
                .Output("slope: float"));
TSRUN_OPERATION("TsrunCrossEntropy", CrossEntropy,
                .Attr("weight: float").Input("logits: float").Input("labels: int32").Output("losses: float")
                .Output("gradient: float"));
TSRUN_OPERATION("TsrunAttention", Attention,
                .Attr("size: int").Input("rows: float").Output("y: float").Output("statistics: float"));
TSRUN_OPERATION("TsrunAttentionGradient", AttentionGradient,
                .Attr("size: int").Input("rows: float").Input("statistics: float").Input("dy: float")
                .Output("gradient: float"));

}  // namespace operations
