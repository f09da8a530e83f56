// NCCL as it is loaded at run time: the few functions that are used, with their types. A set-up without
// CUDA has neither the library nor its header. Where the header is at hand, the compiler compares the two.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace nccl {

struct UniqueId {
  char bytes[128];
};
struct Opaque;
using Comm = Opaque*;

// The configuration of version 2.14, which later versions accept: they take what is missing from their defaults.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
};

constexpr int kSuccess = 0, kInProgress = 7;
constexpr int kFloat32 = 7;
constexpr int kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4;

struct Library {
  int (*get_version)(int* version);
  int (*get_unique_id)(UniqueId* id);
  int (*comm_init_rank_config)(Comm* comm, int size, UniqueId id, int rank, Config* config);
  int (*comm_abort)(Comm comm);
  int (*comm_get_async_error)(Comm comm, int* state);
  const char* (*get_error_string)(int result);
  const char* (*get_last_error)(Comm comm);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void* from, void* to, size_t count, int dtype, int op, Comm comm, void* stream);
  // NCCL works on the memory of GPUs. Only a stand-in for tests says otherwise, by a symbol of its own.
  bool takes_host_memory;
};

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("the library has no ") + name);
}

inline Library Load(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  Library library;
  Find(handle, "ncclGetVersion", library.get_version);
  Find(handle, "ncclGetUniqueId", library.get_unique_id);
  Find(handle, "ncclCommInitRankConfig", library.comm_init_rank_config);
  Find(handle, "ncclCommAbort", library.comm_abort);
  Find(handle, "ncclCommGetAsyncError", library.comm_get_async_error);
  Find(handle, "ncclGetErrorString", library.get_error_string);
  Find(handle, "ncclGetLastError", library.get_last_error);
  Find(handle, "ncclGroupStart", library.group_start);
  Find(handle, "ncclGroupEnd", library.group_end);
  Find(handle, "ncclAllReduce", library.all_reduce);
  library.takes_host_memory = dlsym(handle, "tsrun_test_takes_host_memory") != nullptr;
  return library;
}

}  // namespace nccl

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

namespace nccl {

// Whether both are passed alike: enumerations are ints, and communicators and streams are pointers.
template <typename Ours, typename Theirs>
struct Fits : std::bool_constant<sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>> {};

template <typename R, typename... A, typename S, typename... B>
struct Fits<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B)) return Fits<R, S>::value && (... && Fits<A, B>::value);
    return false;
  }();
};

static_assert(Fits<decltype(Library::get_version), decltype(&ncclGetVersion)>::value);
static_assert(Fits<decltype(Library::get_unique_id), decltype(&ncclGetUniqueId)>::value);
static_assert(Fits<decltype(Library::comm_init_rank_config), decltype(&ncclCommInitRankConfig)>::value);
static_assert(Fits<decltype(Library::comm_abort), decltype(&ncclCommAbort)>::value);
static_assert(Fits<decltype(Library::comm_get_async_error), decltype(&ncclCommGetAsyncError)>::value);
static_assert(Fits<decltype(Library::get_error_string), decltype(&ncclGetErrorString)>::value);
static_assert(Fits<decltype(Library::get_last_error), decltype(&ncclGetLastError)>::value);
static_assert(Fits<decltype(Library::group_start), decltype(&ncclGroupStart)>::value);
static_assert(Fits<decltype(Library::group_end), decltype(&ncclGroupEnd)>::value);
static_assert(Fits<decltype(Library::all_reduce), decltype(&ncclAllReduce)>::value);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(NCCL_VERSION(2, 14, 0) == 21400 && NCCL_VERSION_CODE >= 21400);
static_assert(kSuccess == ncclSuccess && kInProgress == ncclInProgress && kFloat32 == ncclFloat32);
static_assert(kSum == ncclSum && kProd == ncclProd && kMax == ncclMax && kMin == ncclMin && kAvg == ncclAvg);

}  // namespace nccl
#endif
