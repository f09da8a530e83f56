// Single-threaded kernels with Eigen. This file is compiled once for each instruction set, into separate libraries,
// because Eigen's templates compile to different code under the same names.
#include "kernels.h"

#include <Eigen/Core>
#include <cmath>

#include "attention.h"
#include "few-rows.h"
#include "rows.h"

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Matrix<float, 1, Eigen::Dynamic>;
template <typename T>
using In = Eigen::Map<const T>;
template <typename T>
using Out = Eigen::Map<T>;
using Values = Eigen::ArrayXf;

void Forward(Product p, const float* x, const float* w, const float* bias, bool relu, float* y) {
  Out<Matrix> out(y, p.rows, p.outputs);
  if (p.rows <= few_rows::kMost) {
    few_rows::Forward(p, x, w, y);
  } else {
    out.noalias() = In<Matrix>(x, p.rows, p.inputs) * In<Matrix>(w, p.inputs, p.outputs);
  }
  const In<Row> added(bias, p.outputs);
  if (relu) {
    // NaN stays NaN, as in TensorFlow.
    out = (out.rowwise() + added).cwiseMax<Eigen::PropagateNaN>(0.0f);
  } else {
    out.rowwise() += added;
  }
}

void Mask(int64_t size, const float* dy, const float* y, float* dz) {
  // Multiply, so that infinity and NaN are not hidden.
  Out<Values>(dz, size) = In<Values>(dy, size) * (In<Values>(y, size) > 0.0f).cast<float>();
}

void InputGradient(Product p, const float* dz, const float* w, float* dx) {
  if (p.rows <= few_rows::kMost) {
    few_rows::InputGradient(p, dz, w, dx);
  } else {
    Out<Matrix>(dx, p.rows, p.inputs).noalias() =
        In<Matrix>(dz, p.rows, p.outputs) * In<Matrix>(w, p.inputs, p.outputs).transpose();
  }
}

void ParameterGradients(Product p, const float* x, const float* dz, float* scratch, float* dw, float* db) {
  const bool adds = scratch != nullptr;
  if (p.rows <= few_rows::kMost) {
    few_rows::WeightGradient(p, x, dz, adds, dw);
  } else {
    const int64_t size = p.inputs * p.outputs;
    Out<Matrix>(adds ? scratch : dw, p.inputs, p.outputs).noalias() =
        In<Matrix>(x, p.rows, p.inputs).transpose() * In<Matrix>(dz, p.rows, p.outputs);
    if (adds) Out<Values>(dw, size) += In<Values>(scratch, size);
  }
  // Sum row by row: the order in which Eigen sums columns depends on the alignment of their memory.
  Out<Values> sum(adds ? scratch : db, p.outputs);
  sum.setZero();
  for (int64_t row = 0; row < p.rows; row++) sum += In<Values>(dz + row * p.outputs, p.outputs);
  if (adds) Out<Values>(db, p.outputs) += sum;
}

void Descend(int64_t size, float rate, const float* gradient, float* value) {
  Out<Values>(value, size) -= In<Values>(gradient, size) * rate;
}

void DescendWithMomentum(int64_t size, float rate, float momentum, const float* gradient,
                         float* velocity, float* value) {
  Out<Values> v(velocity, size);
  v = v * momentum + In<Values>(gradient, size);
  Out<Values>(value, size) -= v * rate;
}

void Adam(int64_t size, AdamFactors f, const float* gradient, float* mean, float* square, float* value) {
  const float rate = f.learning_rate * std::sqrt(1.0f - f.power2) / (1.0f - f.power1);
  const In<Values> g(gradient, size);
  Out<Values> m(mean, size), v(square, size);
  m += (g - m) * (1.0f - f.beta1);
  v += (g.square() - v) * (1.0f - f.beta2);
  Out<Values> w(value, size);
  w = w * f.keep - (m * rate) / (v.sqrt() + f.epsilon);
}

void Attention(Heads heads, int64_t first, int64_t last, const float* rows, float* statistics, float* out) {
  attention::Head head(heads, false);
  for (int64_t i = first; i < last; i++) head.Forward(i, rows, statistics, out);
}

void AttentionGradient(Heads heads, int64_t first, int64_t last, const float* rows, const float* statistics,
                       const float* dy, float* gradient) {
  attention::Head head(heads, true);
  for (int64_t i = first; i < last; i++) head.Backward(i, rows, statistics, dy, gradient);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Kernels tsrun_kernels = {
    Forward, Mask, InputGradient, ParameterGradients, Descend, DescendWithMomentum, Adam,
    rows::Normalize, rows::NormalizeGradient, rows::Gate, rows::CrossEntropy, Attention, AttentionGradient};
