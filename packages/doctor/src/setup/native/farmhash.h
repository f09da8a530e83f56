// Replaces the FarmHash header, which TensorFlow's headers include but its wheels lack. It declares the names that
// those headers mention. None is called.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace util {
using uint128_t = std::pair<uint64_t, uint64_t>;
inline uint64_t Uint128Low64(const uint128_t& x) { return x.first; }
inline uint64_t Uint128High64(const uint128_t& x) { return x.second; }
uint32_t Fingerprint32(const char* bytes, size_t length);
uint64_t Fingerprint64(const char* bytes, size_t length);
uint128_t Fingerprint128(const char* bytes, size_t length);
}  // namespace util

namespace farmhash = util;
