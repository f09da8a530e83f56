// Kernels for small linear layers, small optimizers and transformers. Matrices are row-major.
#pragma once
#include <cstdint>

struct Product {
  int64_t rows, inputs, outputs;
};

// power1 and power2 are beta1 and beta2 to the power of the step number. `keep` is the factor of the value before the
// step.
struct AdamFactors {
  float power1, power2, learning_rate, beta1, beta2, epsilon, keep;
};

// The queries, keys and values of attention: [sequences, length, 3 x count x size], with `count` heads.
struct Heads {
  int64_t length, size, count;
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
  // ResourceApplyAdam on the product of the value and `keep`
  void (*adam)(int64_t size, AdamFactors, const float* gradient, float* mean, float* square, float* value);

  // y = (x - mean) / sqrt(variance + epsilon) scale + shift for each row. If not `centers`, the mean and the shift are
  // 0. `statistics`: two values for each row.
  void (*normalize)(int64_t rows, int64_t width, float epsilon, bool centers, const float* x, const float* scale,
                    const float* shift, float* statistics, float* y);
  // `sums` gets the sums of the gradients of `scale`, then those of `shift`.
  void (*normalize_gradient)(int64_t rows, int64_t width, bool centers, const float* dy, const float* x,
                             const float* scale, const float* statistics, float* dx, float* sums);
  // y = x sigmoid(linear x + cubic x^3), and `slope` = its derivative
  void (*gate)(int64_t size, float linear, float cubic, const float* x, float* y, float* slope);
  // The cross-entropy of each row of logits, and `weight` times its gradient. Labels are in [0, classes).
  void (*cross_entropy)(int64_t rows, int64_t classes, float weight, const float* logits, const int32_t* labels,
                        float* losses, float* gradient);
  // Causal attention of the heads [first, last), numbered across all sequences. `statistics`: two values for each query
  // of each head. out: [sequences, length, count x size]
  void (*attention)(Heads, int64_t first, int64_t last, const float* rows, float* statistics, float* out);
  void (*attention_gradient)(Heads, int64_t first, int64_t last, const float* rows, const float* statistics,
                             const float* dy, float* gradient);
};
