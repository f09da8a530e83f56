// The computations of small linear layers and small optimizers. Matrices are stored row by row.
#pragma once
#include <cstdint>

struct Product {
  int64_t rows, inputs, outputs;
};

// The powers are those of the betas, with the number of the step as the exponent.
struct AdamFactors {
  float power1, power2, learning_rate, beta1, beta2, epsilon;
};

struct Kernels {
  // y = x w + bias, and 0 where that is negative if relu: [rows, inputs] [inputs, outputs] + [outputs]
  void (*forward)(Product, const float* x, const float* w, const float* bias, bool relu, float* y);
  // dz = dy where y > 0, elsewhere dy times 0; dz may be dy
  void (*mask)(int64_t size, const float* dy, const float* y, float* dz);
  // dx = dz w^T
  void (*input_gradient)(Product, const float* dz, const float* w, float* dx);
  // dw = x^T dz, db = the sum of the rows of dz. With a scratch of the size of dw, they are added to what dw and db
  // have, each after it has been computed completely, so that it has the same bits as without a sum
  void (*parameter_gradients)(Product, const float* x, const float* dz, float* scratch, float* dw, float* db);

  // These round as the operations of TensorFlow named here, on every processor and at every position of an
  // element in a vector.

  // ResourceApplyGradientDescent: value -= rate gradient
  void (*descend)(int64_t size, float rate, const float* gradient, float* value);
  // ResourceApplyMomentum: velocity = momentum velocity + gradient, value -= rate velocity
  void (*descend_with_momentum)(int64_t size, float rate, float momentum, const float* gradient,
                                float* velocity, float* value);
  // ResourceApplyAdam
  void (*adam)(int64_t size, AdamFactors, const float* gradient, float* mean, float* square, float* value);
};
