// Process state for the kernels: the library, and a stack for signal handlers.
#pragma once
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>

#include <string>
#include <vector>

#include "kernels.h"

// A process that runs TensorFlow's MatMul under V8's CPU profiler crashes with a corrupted heap, unless signal
// handlers have a separate stack. The matrix products seem to use the stack pointer for another purpose. Handlers
// with SA_ONSTACK, such as the profiler's, use this stack.
class SignalStack {
 public:
  SignalStack() {
    stack_t stack;
    if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    memory_ = memory;
    stack = {};
    stack.ss_sp = memory_;
    stack.ss_size = kSize;
    sigaltstack(&stack, nullptr);
  }

  ~SignalStack() {
    if (memory_ == nullptr) return;
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    if (sigaltstack(&none, nullptr) == 0) munmap(memory_, kSize);
  }

 private:
  static constexpr size_t kSize = 256 * 1024;
  void* memory_ = nullptr;
};

// Loads the library for the widest instruction set of this machine, among those that were compiled.
inline const Kernels* LoadKernels() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&LoadKernels), &self) == 0) return nullptr;
  const std::string path = self.dli_fname;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  std::vector<std::string> names;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    names.push_back("avx512");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) names.push_back("avx2");
#endif
  names.push_back("any");
  for (const auto& name : names) {
    void* library = dlopen((folder + "libtsrun_kernels_" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    return static_cast<const Kernels*>(dlsym(library, "tsrun_kernels"));
  }
  return nullptr;
}

// Loads the kernels once per process.
inline const Kernels* FindKernels() {
  static const Kernels* const found = LoadKernels();
  return found;
}
