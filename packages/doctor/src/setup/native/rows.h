// Passes over the rows of a matrix, and over single values.
#pragma once
#include <algorithm>
#include <cmath>

#include "vectors.h"

namespace rows {

// x - mean. The mean is given as the sum of two floats, so that a large mean costs no precision.
inline Vector Centered(const float* x, int64_t lanes, float origin, float mean) {
  return Load(x, lanes) - origin - mean;
}

// Layer norm. `centers`: subtract the mean and add `shift`. `statistics` gets, for each row, the mean less the first
// value (0 if not `centers`) and 1 / the standard deviation.
inline void Normalize(int64_t count, int64_t width, float epsilon, bool centers, const float* x, const float* scale,
                      const float* shift, float* statistics, float* y) {
  for (int64_t row = 0; row < count; row++, x += width, y += width, statistics += 2) {
    const float origin = centers ? x[0] : 0;
    float mean = 0;
    if (centers) {
      Vector sum = {};
      ForVectors(width, [&](int64_t i, int64_t lanes) { sum += First(Load(x + i, lanes) - origin, lanes); });
      mean = Total(sum) / width;
    }
    Vector squares = {};
    ForVectors(width, [&](int64_t i, int64_t lanes) {
      const Vector v = First(Centered(x + i, lanes, origin, mean), lanes);
      squares += v * v;
    });
    const float inverse = 1 / std::sqrt(Total(squares) / width + epsilon);
    statistics[0] = mean;
    statistics[1] = inverse;
    ForVectors(width, [&](int64_t i, int64_t lanes) {
      Vector v = Centered(x + i, lanes, origin, mean) * inverse * Load(scale + i, lanes);
      if (centers) v += Load(shift + i, lanes);
      Store(y + i, v, lanes);
    });
  }
}

// The gradients of Normalize. `sums` gets the sums of the gradients of `scale`, then those of `shift`.
inline void NormalizeGradient(int64_t count, int64_t width, bool centers, const float* dy, const float* x,
                              const float* scale, const float* statistics, float* dx, float* sums) {
  float* const shifts = sums + width;
  std::fill(sums, sums + 2 * width, 0.0f);
  for (int64_t row = 0; row < count; row++, x += width, dy += width, dx += width, statistics += 2) {
    const float origin = centers ? x[0] : 0, mean = statistics[0], inverse = statistics[1];
    Vector along = {}, aside = {};
    ForVectors(width, [&](int64_t i, int64_t lanes) {
      const Vector d = Load(dy + i, lanes), normal = Centered(x + i, lanes, origin, mean) * inverse;
      const Vector slope = d * Load(scale + i, lanes), product = d * normal;
      Store(sums + i, Load(sums + i, lanes) + product, lanes);
      Store(shifts + i, Load(shifts + i, lanes) + d, lanes);
      along += slope * normal;
      aside += slope;
    });
    const float a = Total(along) / width, b = centers ? Total(aside) / width : 0;
    ForVectors(width, [&](int64_t i, int64_t lanes) {
      const Vector normal = Centered(x + i, lanes, origin, mean) * inverse;
      Store(dx + i, (Load(dy + i, lanes) * Load(scale + i, lanes) - normal * a - b) * inverse, lanes);
    });
  }
}

// y = x sigmoid(linear x + cubic x^3), and `slope` = its derivative. The factors are at least 0.
inline void Gate(int64_t size, float linear, float cubic, const float* x, float* y, float* slope) {
  ForVectors(size, [=](int64_t i, int64_t lanes) {
    const Vector v = Load(x + i, lanes);
    // 0 times an infinite square would be NaN.
    const Vector square = v * v > All(1e36f) ? All(1e36f) : v * v;
    const Vector inner = v * (square * (cubic * kLog2E) + linear * kLog2E);
    // sigmoid(z) = 1 / (1 + exp(-z)) = exp(z) / (1 + exp(z)): the exponential of -|z| never overflows.
    const Vector power = Exp2((Vector)((Bits)inner | INT32_MIN));
    const Vector right = 1.0f / (power + 1.0f), left = power * right;
    const Vector gate = v < All(0.0f) ? left : right;
    Store(y + i, v * gate, lanes);
    // Multiply by `left * right` first: it is 0 where v times the polynomial overflows.
    Store(slope + i, gate + v * (left * right * (square * (3 * cubic) + linear)), lanes);
  });
}

// The cross-entropy of each row of logits, and `weight` times its gradient. Labels are less than `classes`.
inline void CrossEntropy(int64_t count, int64_t classes, float weight, const float* logits, const int32_t* labels,
                         float* losses, float* gradient) {
  for (int64_t row = 0; row < count; row++, logits += classes, gradient += classes) {
    float largest = logits[0];
    Vector most = All(largest);
    const int64_t whole = classes / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) most = most < Load(logits + i) ? Load(logits + i) : most;
    largest = Largest(most);
    for (int64_t i = whole; i < classes; i++) largest = largest < logits[i] ? logits[i] : largest;
    Vector sum = {};
    ForVectors(classes, [&](int64_t i, int64_t lanes) {
      const Vector power = First(Exp2((Load(logits + i, lanes) - largest) * kLog2E), lanes);
      Store(gradient + i, power, lanes);
      sum += power;
    });
    const float total = Total(sum), factor = weight / total;
    ForVectors(classes, [&](int64_t i, int64_t lanes) { Store(gradient + i, Load(gradient + i, lanes) * factor, lanes); });
    gradient[labels[row]] -= weight;
    losses[row] = std::log(total) - (logits[labels[row]] - largest);
  }
}

}  // namespace rows
