// What the passes of small linear layers and small optimizers compute. Matrices are row by row.
#pragma once
#include <cstdint>

struct Product {
  int64_t rows, inputs, outputs;
};

struct AdamFactors {
  float beta1, beta2;
  // learning rate / (1 - beta1^step)
  float rate;
  // 1 / sqrt(1 - beta2^step)
  float scale;
  float epsilon;
};

struct Kernels {
  // y = x w + bias, and 0 where that is negative if relu: [rows, inputs] [inputs, outputs] + [outputs]
  void (*forward)(Product, const float* x, const float* w, const float* bias, bool relu, float* y);
  // dz = dy where y > 0, elsewhere 0
  void (*mask)(int64_t size, const float* dy, const float* y, float* dz);
  // dx = dz w^T
  void (*input_gradient)(Product, const float* dz, const float* w, float* dx);
  // dw = x^T dz, and db = the sum of the rows of dz; or is added to what is there
  void (*parameter_gradients)(Product, const float* x, const float* dz, bool add, float* dw, float* db);

  // value -= rate gradient
  void (*descend)(int64_t size, float rate, const float* gradient, float* value);
  // velocity = momentum velocity + gradient, value -= rate velocity
  void (*descend_with_momentum)(int64_t size, float rate, float momentum, const float* gradient,
                                float* velocity, float* value);
  // as torch.optim.Adam
  void (*adam)(int64_t size, AdamFactors, const float* gradient, float* mean, float* square, float* value);
};
