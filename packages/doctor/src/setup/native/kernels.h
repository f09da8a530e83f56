// Kernels for small linear layers and small optimizers. Matrices are row-major.
#pragma once
#include <cstdint>

struct Product {
  int64_t rows, inputs, outputs;
};

// power1 and power2 are beta1 and beta2 to the power of the step number.
struct AdamFactors {
  float power1, power2, learning_rate, beta1, beta2, epsilon;
};

struct Kernels {
  // y = x w + bias, followed by ReLU if `relu`: [rows, inputs] [inputs, outputs] + [outputs]
  void (*forward)(Product, const float* x, const float* w, const float* bias, bool relu, float* y);
  // dz = dy where y > 0, elsewhere 0 times dy; dz may alias dy
  void (*mask)(int64_t size, const float* dy, const float* y, float* dz);
  // dx = dz w^T
  void (*input_gradient)(Product, const float* dz, const float* w, float* dx);
  // dw = x^T dz, db = the sum of the rows of dz. If `scratch`, of the size of dw, is given, the complete results are
  // added to dw and db, so that they have the same bits as without adding.
  void (*parameter_gradients)(Product, const float* x, const float* dz, float* scratch, float* dw, float* db);

  // These round exactly like the TensorFlow operations named here, on every processor and at every position of an
  // element in a vector.

  // ResourceApplyGradientDescent: value -= rate gradient
  void (*descend)(int64_t size, float rate, const float* gradient, float* value);
  // ResourceApplyMomentum: velocity = momentum velocity + gradient, value -= rate velocity
  void (*descend_with_momentum)(int64_t size, float rate, float momentum, const float* gradient,
                                float* velocity, float* value);
  // ResourceApplyAdam
  void (*adam)(int64_t size, AdamFactors, const float* gradient, float* mean, float* square, float* value);
};
