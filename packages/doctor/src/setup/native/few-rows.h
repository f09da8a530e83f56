// Products of a matrix of few rows, such as a micro-batch, with the weights of a linear layer. Eigen first copies
// both factors into panels, which takes longer than the product itself for few rows. These functions read each weight
// once, in place, and keep the sums in registers. Matrices are row-major.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels.h"
#include "vectors.h"

namespace few_rows {

// The most rows for which this is faster than Eigen.
constexpr int64_t kMost = 32;

// A tile of y += x w: R rows and V vectors of columns, over `depth` inputs. `first`: y is uninitialized.
template <int R, int V>
void SumTile(Product p, int64_t depth, const float* x, const float* w, bool first, float* y) {
  Vector sum[R][V];
  TSRUN_UNROLL for (int r = 0; r < R; r++) {
    TSRUN_UNROLL for (int v = 0; v < V; v++) sum[r][v] = first ? Vector{} : Load(y + r * p.outputs + v * kLanes);
  }
  for (int64_t k = 0; k < depth; k++) {
    Vector weights[V];
    TSRUN_UNROLL for (int v = 0; v < V; v++) weights[v] = Load(w + k * p.outputs + v * kLanes);
    TSRUN_UNROLL for (int r = 0; r < R; r++) {
      TSRUN_UNROLL for (int v = 0; v < V; v++) AddProduct(x[r * p.inputs + k], weights[v], sum[r][v]);
    }
  }
  TSRUN_UNROLL for (int r = 0; r < R; r++) {
    TSRUN_UNROLL for (int v = 0; v < V; v++) Store(y + r * p.outputs + v * kLanes, sum[r][v]);
  }
}

template <int V>
void SumColumns(Product p, int64_t depth, const float* x, const float* w, bool first, float* y) {
  constexpr int R = kManyRegisters ? 8 : 4;
  int64_t row = 0;
  for (; row + R <= p.rows; row += R) SumTile<R, V>(p, depth, x + row * p.inputs, w, first, y + row * p.outputs);
  for (; row < p.rows; row++) SumTile<1, V>(p, depth, x + row * p.inputs, w, first, y + row * p.outputs);
}

// y = x w. Each sum adds its terms in the order of the inputs.
inline void Forward(Product p, const float* x, const float* w, float* y) {
  // Inputs whose weights are read in parallel: processors prefetch about as many streams.
  constexpr int64_t kDepth = 32;
  constexpr int V = 3;
  for (int64_t k = 0; k < p.inputs; k += kDepth) {
    const int64_t depth = std::min(kDepth, p.inputs - k);
    const float* weights = w + k * p.outputs;
    const bool first = k == 0;
    int64_t at = 0;
    for (; at + V * kLanes <= p.outputs; at += V * kLanes) SumColumns<V>(p, depth, x + k, weights + at, first, y + at);
    for (; at + kLanes <= p.outputs; at += kLanes) SumColumns<1>(p, depth, x + k, weights + at, first, y + at);
    for (; at < p.outputs; at++) {
      for (int64_t row = 0; row < p.rows; row++) {
        float sum = first ? 0 : y[row * p.outputs + at];
        for (int64_t i = 0; i < depth; i++) sum += x[row * p.inputs + k + i] * weights[i * p.outputs + at];
        y[row * p.outputs + at] = sum;
      }
    }
  }
}

// K columns of dx = dz w^T, with rows as the lanes of V vectors. `turned` is dz in this layout.
template <int K, int V>
void ColumnTile(Product p, const float* turned, const float* w, float* dx) {
  Vector sum[K][V] = {};
  for (int64_t n = 0; n < p.outputs; n++) {
    Vector gradient[V];
    TSRUN_UNROLL for (int v = 0; v < V; v++) gradient[v] = Load(turned + (n * V + v) * kLanes);
    TSRUN_UNROLL for (int k = 0; k < K; k++) {
      TSRUN_UNROLL for (int v = 0; v < V; v++) AddProduct(w[k * p.outputs + n], gradient[v], sum[k][v]);
    }
  }
  float columns[K][V * kLanes];
  TSRUN_UNROLL for (int k = 0; k < K; k++) {
    TSRUN_UNROLL for (int v = 0; v < V; v++) Store(columns[k] + v * kLanes, sum[k][v]);
  }
  for (int64_t row = 0; row < p.rows; row++) {
    for (int k = 0; k < K; k++) dx[row * p.inputs + k] = columns[k][row];
  }
}

template <int V>
void InputGradientInVectors(Product p, const float* dz, const float* w, float* dx) {
  const std::unique_ptr<float[]> turned(new float[p.outputs * V * kLanes]());
  for (int64_t row = 0; row < p.rows; row++) {
    for (int64_t n = 0; n < p.outputs; n++) turned[n * V * kLanes + row] = dz[row * p.outputs + n];
  }
  // Weight rows with a power-of-two stride map to one set of the L1 cache, which has about a dozen ways.
  constexpr int K = kManyRegisters ? 10 : std::max(1, 12 / V);
  int64_t k = 0;
  for (; k + K <= p.inputs; k += K) ColumnTile<K, V>(p, turned.get(), w + k * p.outputs, dx + k);
  for (; k < p.inputs; k++) ColumnTile<1, V>(p, turned.get(), w + k * p.outputs, dx + k);
}

// dx = dz w^T. Each sum adds its terms in the order of the outputs.
inline void InputGradient(Product p, const float* dz, const float* w, float* dx) {
  if (p.rows <= kLanes) {
    InputGradientInVectors<1>(p, dz, w, dx);
  } else if (p.rows <= 2 * kLanes) {
    InputGradientInVectors<2>(p, dz, w, dx);
  } else {
    InputGradientInVectors<kMost / kLanes>(p, dz, w, dx);
  }
}

// A tile of dw = x^T dz: K inputs and V vectors of outputs
template <int K, int V>
void OuterTile(Product p, const float* x, const float* dz, bool adds, float* dw) {
  Vector sum[K][V] = {};
  for (int64_t row = 0; row < p.rows; row++) {
    Vector gradient[V];
    TSRUN_UNROLL for (int v = 0; v < V; v++) gradient[v] = Load(dz + row * p.outputs + v * kLanes);
    TSRUN_UNROLL for (int k = 0; k < K; k++) {
      TSRUN_UNROLL for (int v = 0; v < V; v++) AddProduct(x[row * p.inputs + k], gradient[v], sum[k][v]);
    }
  }
  TSRUN_UNROLL for (int k = 0; k < K; k++) {
    TSRUN_UNROLL for (int v = 0; v < V; v++) {
      float* at = dw + k * p.outputs + v * kLanes;
      Store(at, adds ? Load(at) + sum[k][v] : sum[k][v]);
    }
  }
}

template <int K>
void OuterRows(Product p, const float* x, const float* dz, bool adds, float* dw) {
  constexpr int V = kManyRegisters ? 4 : 3;
  int64_t at = 0;
  for (; at + V * kLanes <= p.outputs; at += V * kLanes) OuterTile<K, V>(p, x, dz + at, adds, dw + at);
  for (; at + kLanes <= p.outputs; at += kLanes) OuterTile<K, 1>(p, x, dz + at, adds, dw + at);
  for (; at < p.outputs; at++) {
    for (int k = 0; k < K; k++) {
      float sum = 0;
      for (int64_t row = 0; row < p.rows; row++) sum += x[row * p.inputs + k] * dz[row * p.outputs + at];
      float& weight = dw[k * p.outputs + at];
      weight = adds ? weight + sum : sum;
    }
  }
}

// dw = x^T dz, or dw += x^T dz, for which the product is completed before it is added. Each sum adds its terms in the
// order of the rows.
inline void WeightGradient(Product p, const float* x, const float* dz, bool adds, float* dw) {
  constexpr int K = kManyRegisters ? 6 : 3;
  int64_t k = 0;
  for (; k + K <= p.inputs; k += K) OuterRows<K>(p, x + k, dz, adds, dw + k * p.outputs);
  for (; k < p.inputs; k++) OuterRows<1>(p, x + k, dz, adds, dw + k * p.outputs);
}

}  // namespace few_rows
