// Vectors of floats of the widest instruction set for which a file is compiled.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif
constexpr bool kManyRegisters = kLanes == 16;

// Vectors may be at any address that is aligned for float.
typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

// Loops with constant bounds are unrolled, which keeps arrays of vectors in registers.
#define TSRUN_UNROLL _Pragma("GCC unroll 32")

inline Vector Load(const float* at) { return *reinterpret_cast<const Vector*>(at); }
inline void Store(float* at, Vector v) { *reinterpret_cast<Vector*>(at) = v; }

inline Vector All(float value) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(value);
#elif defined(__AVX2__)
  return _mm256_set1_ps(value);
#else
  return Vector{value, value, value, value};
#endif
}

// The first `count` lanes; the others are 0.
inline Vector Load(const float* at, int64_t count) {
  if (count >= kLanes) return Load(at);
  float lanes[kLanes] = {};
  std::memcpy(lanes, at, 4 * count);
  return Load(lanes);
}
inline void Store(float* at, Vector v, int64_t count) {
  if (count >= kLanes) return Store(at, v);
  std::memcpy(at, &v, 4 * count);
}

// The first `count` lanes of a vector; the others become 0.
inline Vector First(Vector v, int64_t count) {
  return count >= kLanes ? v : Load(reinterpret_cast<const float*>(&v), count);
}

// f(i, lanes) for each vector of `size` values; only the last one may have fewer lanes.
template <typename F>
inline void ForVectors(int64_t size, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) f(i, kLanes);
  if (i < size) f(i, size - i);
}

// sum += factor vector, with one rounding if the processor supports FMA
inline void AddProduct(float factor, Vector vector, Vector& sum) {
#if defined(__AVX512F__)
  sum = _mm512_fmadd_ps(_mm512_set1_ps(factor), vector, sum);
#elif defined(__AVX2__)
  sum = _mm256_fmadd_ps(_mm256_set1_ps(factor), vector, sum);
#else
  sum += factor * vector;
#endif
}

// The sum of the lanes.
inline float Total(Vector v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(v);
#else
  for (int64_t n = kLanes / 2; n > 0; n /= 2) {
    for (int64_t i = 0; i < n; i++) v[i] += v[i + n];
  }
  return v[0];
#endif
}

inline float Largest(Vector v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(v);
#else
  float largest = v[0];
  for (int64_t i = 1; i < kLanes; i++) largest = v[i] > largest ? v[i] : largest;
  return largest;
#endif
}

constexpr float kLog2E = 1.44269504f;

// 2^x for x of at most 0, with a relative error of 1e-7; 0 for x below -126.5. For a whole number n,
// 2^(n + r) = 2^n 2^r.
inline Vector Exp2(Vector x) {
  const Vector bounded = x < All(-127.0f) ? All(-127.0f) : x;
  // Adding 1.5 2^23 rounds to a whole number, which is then in the low bits.
  const Vector shifted = bounded + 12582912.0f;
  const Vector r = bounded - (shifted - 12582912.0f);
  // The coefficients minimize the largest error.
  const Vector square = r * r;
  const Vector a = r * 0.055503320f + 0.24022648f;
  const Vector b = r * 0.0013399003f + 0.0096184388f + square * 0.00015353259f;
  const Vector y = r * 0.69314718f + square * (a + square * b) + 1.0f;
  return y * (Vector)(((Bits)shifted + 127) << 23);
}
