// The kernels by Eigen, in one thread. This file is compiled once for each set of instructions, to a
// library of its own: what Eigen's templates become under one name would differ between them.
#include "kernels.h"

#include <Eigen/Core>

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
  out.noalias() = In<Matrix>(x, p.rows, p.inputs) * In<Matrix>(w, p.inputs, p.outputs);
  const In<Row> added(bias, p.outputs);
  if (relu) {
    // what is not a number stays so, as in TensorFlow's
    out = (out.rowwise() + added).cwiseMax<Eigen::PropagateNaN>(0.0f);
  } else {
    out.rowwise() += added;
  }
}

void Mask(int64_t size, const float* dy, const float* y, float* dz) {
  Out<Values>(dz, size) = (In<Values>(y, size) > 0.0f).select(In<Values>(dy, size), 0.0f);
}

void InputGradient(Product p, const float* dz, const float* w, float* dx) {
  Out<Matrix>(dx, p.rows, p.inputs).noalias() =
      In<Matrix>(dz, p.rows, p.outputs) * In<Matrix>(w, p.inputs, p.outputs).transpose();
}

void ParameterGradients(Product p, const float* x, const float* dz, bool add, float* dw, float* db) {
  const In<Matrix> gradient(dz, p.rows, p.outputs);
  const auto input = In<Matrix>(x, p.rows, p.inputs).transpose();
  Out<Matrix> weights(dw, p.inputs, p.outputs);
  Out<Row> biases(db, p.outputs);
  if (add) {
    weights.noalias() += input * gradient;
    biases += gradient.colwise().sum();
  } else {
    weights.noalias() = input * gradient;
    biases = gradient.colwise().sum();
  }
}

void Descend(int64_t size, float rate, const float* gradient, float* value) {
  Out<Values>(value, size) -= rate * In<Values>(gradient, size);
}

void DescendWithMomentum(int64_t size, float rate, float momentum, const float* gradient,
                         float* velocity, float* value) {
  Out<Values> v(velocity, size);
  v = momentum * v + In<Values>(gradient, size);
  Out<Values>(value, size) -= rate * v;
}

void Adam(int64_t size, AdamFactors f, const float* gradient, float* mean, float* square, float* value) {
  const In<Values> g(gradient, size);
  Out<Values> m(mean, size), s(square, size);
  m = f.beta1 * m + (1 - f.beta1) * g;
  s = f.beta2 * s + (1 - f.beta2) * g.square();
  Out<Values>(value, size) -= f.rate * m / (s.sqrt() * f.scale + f.epsilon);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Kernels tsrun_kernels = {
    Forward, Mask, InputGradient, ParameterGradients, Descend, DescendWithMomentum, Adam};
