// Causal attention of one head after the other, in blocks of queries, so that scores stay in the caches.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>

#include "kernels.h"
#include "vectors.h"

namespace attention {

// The number of queries in a block. A block skips the keys after its last query.
constexpr int64_t kQueries = 64;

inline int64_t Whole(int64_t size) { return (size + kLanes - 1) / kLanes * kLanes; }

// The left factor of a product: a matrix whose rows are `stride` apart, or its transpose.
template <bool Turned>
struct Left {
  const float* data;
  int64_t stride;

  const float* At(int64_t row, int64_t column) const {
    return Turned ? data + column * stride + row : data + row * stride + column;
  }
};

template <int R, int V, bool Turned>
void Tile(int64_t depth, Left<Turned> a, const float* b, int64_t b_stride, bool adds, float* c, int64_t c_stride) {
  Vector sum[R][V];
  TSRUN_UNROLL for (int r = 0; r < R; r++) {
    TSRUN_UNROLL for (int v = 0; v < V; v++) sum[r][v] = adds ? Load(c + r * c_stride + v * kLanes) : Vector{};
  }
  for (int64_t k = 0; k < depth; k++) {
    Vector right[V];
    TSRUN_UNROLL for (int v = 0; v < V; v++) right[v] = Load(b + k * b_stride + v * kLanes);
    TSRUN_UNROLL for (int r = 0; r < R; r++) {
      TSRUN_UNROLL for (int v = 0; v < V; v++) AddProduct(*a.At(r, k), right[v], sum[r][v]);
    }
  }
  TSRUN_UNROLL for (int r = 0; r < R; r++) {
    TSRUN_UNROLL for (int v = 0; v < V; v++) Store(c + r * c_stride + v * kLanes, sum[r][v]);
  }
}

using Plain = Left<false>;
using Transposed = Left<true>;

// c = a b, or c += a b if `adds`. The number of columns is a multiple of kLanes.
template <bool Turned>
void Multiply(int64_t rows, int64_t depth, int64_t columns, Left<Turned> a, const float* b, int64_t b_stride, bool adds,
              float* c, int64_t c_stride) {
  constexpr int R = kManyRegisters ? 8 : 4;
  int64_t at = 0;
  const auto run = [&](auto vectors) {
    constexpr int V = decltype(vectors)::value;
    for (; at + V * kLanes <= columns; at += V * kLanes) {
      const auto tile = [&](auto count, int64_t row) {
        const Left<Turned> own = {a.At(row, 0), a.stride};
        Tile<decltype(count)::value, V>(depth, own, b + at, b_stride, adds, c + row * c_stride + at, c_stride);
      };
      int64_t row = 0;
      for (; row + R <= rows; row += R) tile(std::integral_constant<int, R>(), row);
      for (; row < rows; row++) tile(std::integral_constant<int, 1>(), row);
    }
  };
  run(std::integral_constant<int, 2>());
  run(std::integral_constant<int, 1>());
}

// Copies factor times a matrix [rows, columns] of which rows are `from_stride` and `to_stride` apart.
inline void Copy(int64_t rows, int64_t columns, float factor, const float* from, int64_t from_stride, float* to,
                 int64_t to_stride) {
  for (int64_t row = 0; row < rows; row++) {
    const float* const source = from + row * from_stride;
    float* const target = to + row * to_stride;
    ForVectors(columns, [=](int64_t i, int64_t lanes) { Store(target + i, Load(source + i, lanes) * factor, lanes); });
  }
}

inline void Transpose(int64_t rows, int64_t columns, const float* from, int64_t from_stride, float* to,
                      int64_t to_stride) {
  for (int64_t i = 0; i < columns; i++) {
    for (int64_t row = 0; row < rows; row++) to[i * to_stride + row] = from[row * from_stride + i];
  }
}

// One head at a time, with its matrices in own memory.
class Head {
 public:
  Head(Heads heads, bool has_gradient)
      : heads_(heads), wide_(Whole(heads.size)), stride_(Whole(heads.length) + kLanes) {
    const int64_t high = heads.length * wide_, flat = heads.size * stride_, block = kQueries * stride_;
    const int64_t sizes[] = {high, flat, high, block, kQueries * wide_, high, flat, high, high, block};
    const int count = has_gradient ? 10 : 5;
    int64_t all = 0;
    for (int i = 0; i < count; i++) all += sizes[i];
    // Rows are padded with zeros.
    memory_.reset(new float[all]());
    float* at = memory_.get();
    for (int i = 0; i < count; i++, at += sizes[i - 1]) *parts_[i] = at;
  }

  void Forward(int64_t head, const float* rows, float* statistics, float* out) {
    const auto [length, size, count] = heads_;
    Read(head, rows);
    Copy(length, size, 1, In(head, rows, 2), 3 * Width(), v_, wide_);
    out += head / count * length * Width() + head % count * size;
    statistics += head * length * 2;
    ForBlocks([&](int64_t first, int64_t queries, int64_t keys) {
      Score(first, queries, keys);
      // Separate loops, so that the operations on a row do not wait for those on the row before it.
      ForRows(first, queries, [&](int64_t row, const float* p, int64_t visible) {
        Vector largest = Load(p);
        for (int64_t i = kLanes; i < visible; i += kLanes) {
          const Vector v = Load(p + i);
          largest = largest < v ? v : largest;
        }
        statistics[2 * row] = Largest(largest);
      });
      ForRows(first, queries, [&](int64_t row, float* p, int64_t visible) {
        const float largest = statistics[2 * row];
        Vector sum = {};
        for (int64_t i = 0; i < visible; i += kLanes) {
          const Vector power = Power(p + i, largest);
          Store(p + i, power);
          sum += power;
        }
        statistics[2 * row + 1] = 1 / Total(sum);
      });
      Multiply(queries, keys, wide_, Plain{scores_, stride_}, v_, wide_, false, block_, wide_);
      ForRows(first, queries, [&](int64_t row, const float*, int64_t) {
        Copy(1, heads_.size, statistics[2 * row + 1], block_ + (row - first) * wide_, 0, out + row * Width(), 0);
      });
    });
  }

  void Backward(int64_t head, const float* rows, const float* statistics, const float* dy, float* gradient) {
    const auto [length, size, count] = heads_;
    const int64_t channels = 3 * Width();
    Read(head, rows);
    Copy(length, size, 1, In(head, rows, 1), channels, k_, wide_);
    Transpose(length, size, In(head, rows, 2), channels, turned_values_, stride_);
    const float* slopes = dy + head / count * length * Width() + head % count * size;
    Copy(length, size, 1, slopes, Width(), dy_, wide_);
    statistics += head * length * 2;
    float* const dv = v_;
    std::fill(dv, dv + length * wide_, 0.0f);
    std::fill(dk_, dk_ + length * wide_, 0.0f);
    float* const dq = gradient + (In(head, rows, 0) - rows);
    ForBlocks([&](int64_t first, int64_t queries, int64_t keys) {
      Score(first, queries, keys);
      ForRows(first, queries, [&](int64_t row, float* p, int64_t visible) {
        const float largest = statistics[2 * row], inverse = statistics[2 * row + 1];
        for (int64_t i = 0; i < visible; i += kLanes) Store(p + i, Power(p + i, largest) * inverse);
      });
      const float* own = dy_ + first * wide_;
      Multiply(keys, queries, wide_, Transposed{scores_, stride_}, own, wide_, true, dv, wide_);
      Multiply(queries, heads_.size, Whole(keys), Plain{own, wide_}, turned_values_, stride_, false, slopes_, stride_);
      for (int64_t row = 0; row < queries; row++) {
        const float* p = scores_ + row * stride_;
        float* d = slopes_ + row * stride_;
        Vector sum = {};
        for (int64_t i = 0; i < keys; i += kLanes) sum += Load(p + i) * Load(d + i);
        const float total = Total(sum);
        for (int64_t i = 0; i < keys; i += kLanes) Store(d + i, Load(p + i) * (Load(d + i) - total));
      }
      Multiply(queries, keys, wide_, Plain{slopes_, stride_}, k_, wide_, false, block_, wide_);
      Copy(queries, heads_.size, Scale(), block_, wide_, dq + first * 3 * Width(), 3 * Width());
      Multiply(keys, queries, wide_, Transposed{slopes_, stride_}, q_ + first * wide_, wide_, true, dk_, wide_);
    });
    Copy(length, size, 1, dk_, wide_, dq + Width(), channels);
    Copy(length, size, 1, dv, wide_, dq + 2 * Width(), channels);
  }

 private:
  int64_t Width() const { return heads_.count * heads_.size; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(heads_.size)); }

  // The queries (part 0), keys (1) or values (2) of a head. Heads are numbered across all sequences.
  const float* In(int64_t head, const float* rows, int64_t part) const {
    const int64_t sequence = head / heads_.count * heads_.length * 3 * Width();
    return rows + sequence + part * Width() + head % heads_.count * heads_.size;
  }

  void Read(int64_t head, const float* rows) {
    const auto [length, size, count] = heads_;
    Copy(length, size, Scale(), In(head, rows, 0), 3 * Width(), q_, wide_);
    Transpose(length, size, In(head, rows, 1), 3 * Width(), turned_keys_, stride_);
  }

  template <typename F>
  void ForBlocks(F&& f) const {
    for (int64_t first = 0; first < heads_.length; first += kQueries) {
      const int64_t queries = std::min(kQueries, heads_.length - first);
      f(first, queries, first + queries);
    }
  }

  // Writes the scores q k' of a block to `scores_`. The rows are filled up to whole vectors with -infinity.
  void Score(int64_t first, int64_t queries, int64_t keys) {
    Multiply(queries, heads_.size, Whole(keys), Plain{q_ + first * wide_, wide_}, turned_keys_, stride_, false, scores_,
             stride_);
    ForRows(first, queries, [&](int64_t row, float* p, int64_t visible) {
      std::fill(p + visible, p + Whole(visible), -INFINITY);
      std::fill(p + Whole(visible), p + Whole(keys), 0.0f);
    });
  }

  // f(row, scores, visible) for each query of a block, which attends to the first `visible` keys.
  template <typename F>
  void ForRows(int64_t first, int64_t queries, F&& f) const {
    for (int64_t row = 0; row < queries; row++) f(first + row, scores_ + row * stride_, first + row + 1);
  }

  static Vector Power(const float* scores, float largest) { return Exp2((Load(scores) - largest) * kLog2E); }

  const Heads heads_;
  // The padded size of a head, and the padded length. Rows a power of two apart would share a set of the cache.
  const int64_t wide_, stride_;
  std::unique_ptr<float[]> memory_;
  float *q_, *turned_keys_, *v_, *scores_, *block_, *k_, *turned_values_, *dy_, *dk_, *slopes_;
  float** const parts_[10] = {&q_, &turned_keys_, &v_, &scores_, &block_, &k_, &turned_values_, &dy_, &dk_, &slopes_};
};

}  // namespace attention
