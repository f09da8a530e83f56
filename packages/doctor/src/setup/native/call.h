// A call from JavaScript: its arguments (tensors and numbers), and its result tensors.
#pragma once
#include <node_api.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "binding/tfjs_backend.h"
#include "load.h"
#include "tensorflow/c/eager/tfe_context_internal.h"
#include "tensorflow/c/eager/tfe_tensorhandle_internal.h"
#include "tensorflow/core/common_runtime/eager/context.h"
#include "tensorflow/core/common_runtime/eager/tensor_handle.h"

inline void Check(bool holds, const char* expected) {
  if (!holds) throw std::invalid_argument(expected);
}

// The reference count of a tensor's memory.
inline int64_t References(const tensorflow::Tensor& tensor) { return tensor.buf_->RefCount(); }

// The number of references that one handle holds. It also protects the memory from being forwarded.
inline int64_t ReferencesOfHandle() {
  static const int64_t count = [] {
    auto* handle = tensorflow::TensorHandle::CreateLocalHandle(tensorflow::Tensor(tensorflow::DT_FLOAT, {1}));
    const tensorflow::Tensor* tensor = nullptr;
    const int64_t references = handle->Tensor(&tensor).ok() ? References(*tensor) : 0;
    handle->Unref();
    return references;
  }();
  return count;
}

// The memory of a tensor. The last dimension is the number of columns; a vector is one row.
struct Matrix {
  const tensorflow::Tensor* tensor;
  float* data;
  int64_t rows, columns;

  int64_t size() const { return rows * columns; }
  // Whether no other tensor shares the memory, so that writing to it is safe.
  bool IsAlone() const {
    tensorflow::TensorBuffer* buffer = tensor->buf_;
    if (buffer == nullptr || buffer->root_buffer() != buffer || !buffer->OwnsMemory()) return false;
    return References(*tensor) == ReferencesOfHandle();
  }
};

// The arguments of a call from JavaScript, and its results.
class Call {
 public:
  const Kernels* const kernels = FindKernels();

  Call(napi_env env, napi_callback_info info) : env_(env) {
    size_t count = arguments_.size();
    void* backend = nullptr;
    napi_get_cb_info(env, info, &count, arguments_.data(), nullptr, nullptr);
    napi_get_instance_data(env, &backend);
    backend_ = static_cast<tfnodejs::TFJSBackend*>(backend);
    Check(backend_ != nullptr && count > 0, "a backend and arguments");
    void* handles = nullptr;
    Read(0, napi_int32_array, &handles, &count_);
    handles_ = static_cast<const int32_t*>(handles);
  }

  size_t count() const { return count_; }
  int32_t handle(size_t i) const { return handles_[i]; }

  float* Floats(size_t argument, int64_t size) const { return FloatsOf(arguments_[argument], size); }

  // Any bytes. The caller owns the memory.
  std::pair<const void*, size_t> Bytes(size_t argument) const {
    void* data = nullptr;
    size_t length = 0;
    Read(argument, napi_uint8_array, &data, &length);
    return {data, length};
  }

  TFE_Context* context() const { return backend_->tfe_context_; }

  tensorflow::EagerContext& eager() const {
    return *tensorflow::ContextFromInterface(tensorflow::unwrap(context()));
  }

  tensorflow::Device* device() const {
    if (device_ == nullptr) {
      Check(eager().FindDeviceFromName(backend_->device_name.c_str(), &device_).ok(), "the device of the backend");
    }
    return device_;
  }

  // Whether the tensors are in memory that the host can access.
  bool IsOnHost() const { return eager().CanonicalDevice(device()) == nullptr; }

  const tensorflow::DeviceMgr* devices() const { return eager().local_device_mgr(); }

  // Runs functions on the device of the tensors.
  tensorflow::FunctionLibraryRuntime& runtime() const { return *eager().func_lib(device()); }

  bool Has(size_t argument) const {
    napi_valuetype type = napi_undefined;
    return argument < arguments_.size() && napi_typeof(env_, arguments_[argument], &type) == napi_ok &&
           type != napi_undefined;
  }

  // An argument that is a list of arrays with lengths `sizes`.
  std::vector<float*> Arrays(size_t argument, const std::vector<int64_t>& sizes) const {
    uint32_t length = 0;
    const napi_status status = napi_get_array_length(env_, arguments_[argument], &length);
    Check(status == napi_ok && length == sizes.size(), "an array for each gradient");
    std::vector<float*> arrays;
    for (uint32_t i = 0; i < length; i++) {
      napi_value array;
      Check(napi_get_element(env_, arguments_[argument], i, &array) == napi_ok, "an array for each gradient");
      arrays.push_back(FloatsOf(array, sizes[i]));
    }
    return arrays;
  }

  // The handle of a tensor on any device.
  TFE_TensorHandle* Handle(size_t i) const {
    Check(i < count_, "more tensors");
    const auto found = backend_->tfe_handle_map_.find(handles_[i]);
    Check(found != backend_->tfe_handle_map_.end(), "handles of tensors");
    return found->second;
  }

  // The values of a tensor on the device of the backend, where they are copied if they are elsewhere.
  tensorflow::Tensor TensorOnDevice(size_t i) const {
    TFE_TensorHandle* given = Handle(i);
    std::unique_ptr<TFE_TensorHandle, decltype(&TFE_DeleteTensorHandle)> copy(nullptr, TFE_DeleteTensorHandle);
    if (tensorflow::TensorHandleFromInterface(tensorflow::unwrap(given))->device() != eager().CanonicalDevice(device())) {
      const std::unique_ptr<TF_Status, decltype(&TF_DeleteStatus)> status(TF_NewStatus(), TF_DeleteStatus);
      copy.reset(TFE_TensorHandleCopyToDevice(given, context(), backend_->device_name.c_str(), status.get()));
      if (copy == nullptr) throw std::runtime_error(TF_Message(status.get()));
      given = copy.get();
    }
    const tensorflow::Tensor* tensor = nullptr;
    Check(tensorflow::TensorHandleFromInterface(tensorflow::unwrap(given))->Tensor(&tensor).ok(), "tensors with values");
    return *tensor;
  }

  Matrix Tensor(size_t i) const {
    const tensorflow::Tensor* tensor = nullptr;
    auto* handle = tensorflow::TensorHandleFromInterface(tensorflow::unwrap(Handle(i)));
    // TensorFlow uses a null device for the local CPU; on other devices, data() is no address of this process.
    Check(handle->device() == nullptr, "tensors of the CPU");
    Check(handle->Tensor(&tensor).ok() && tensor->dtype() == tensorflow::DT_FLOAT, "float32 in memory");
    const int dims = tensor->dims();
    const int64_t columns = dims == 0 ? 1 : tensor->dim_size(dims - 1);
    const int64_t rows = columns == 0 ? 0 : tensor->NumElements() / columns;
    return {tensor, static_cast<float*>(tensor->data()), rows, columns};
  }

  Matrix Tensor(size_t i, int64_t rows, int64_t columns) const {
    const Matrix matrix = Tensor(i);
    Check(matrix.rows == rows && matrix.columns == columns, "tensors whose shapes fit one another");
    return matrix;
  }

  // Adds a tensor to the results.
  float* Create(const tensorflow::TensorShape& shape) {
    tensorflow::Tensor tensor(tensorflow::DT_FLOAT, shape);
    if (!tensor.IsInitialized()) throw std::bad_alloc();
    auto* data = static_cast<float*>(tensor.data());
    Add(tensorflow::TensorHandle::CreateLocalHandle(tensor));
    return data;
  }

  // Adds a tensor on the device of the arguments to the results.
  void Add(tensorflow::Tensor&& tensor) {
    Add(tensorflow::TensorHandle::CreateLocalHandle(std::move(tensor), eager().CanonicalDevice(device()), device(),
                                                    &eager()));
  }

  // Adds a tensor to the results, which take ownership.
  void Add(tensorflow::TensorHandle* handle) { results_.push_back(tensorflow::wrap(handle)); }

  // One flag for each layer.
  std::vector<bool> Flags(size_t argument) const {
    void* data = nullptr;
    size_t length = 0;
    Read(argument, napi_uint8_array, &data, &length);
    Check(length > 0, "one layer at least");
    const auto* flags = static_cast<const uint8_t*>(data);
    return std::vector<bool>(flags, flags + length);
  }

  bool Flag(size_t argument) const {
    bool value = false;
    Check(napi_get_value_bool(env_, arguments_[argument], &value) == napi_ok, "true or false");
    return value;
  }

  double Number(size_t argument) const {
    double value = 0;
    Check(napi_get_value_double(env_, arguments_[argument], &value) == napi_ok, "numbers");
    return value;
  }

  // The handles of the results, in order.
  napi_value Results() {
    napi_value array;
    napi_create_array_with_length(env_, results_.size(), &array);
    for (size_t i = 0; i < results_.size(); i++) {
      napi_value id;
      napi_create_int32(env_, backend_->InsertHandle(results_[i]), &id);
      napi_set_element(env_, array, i, id);
    }
    results_.clear();
    return array;
  }

  napi_value Result(double value) const {
    napi_value result;
    napi_create_double(env_, value, &result);
    return result;
  }

  napi_value Boolean(bool value) const {
    napi_value result;
    napi_get_boolean(env_, value, &result);
    return result;
  }

  ~Call() {
    for (TFE_TensorHandle* handle : results_) TFE_DeleteTensorHandle(handle);
  }

 private:
  float* FloatsOf(napi_value array, int64_t size) const {
    void* data = nullptr;
    size_t length = 0;
    ReadArray(array, napi_float32_array, &data, &length);
    Check(static_cast<int64_t>(length) == size, "an array as long as the tensor");
    return static_cast<float*>(data);
  }

  void Read(size_t argument, napi_typedarray_type expected, void** data, size_t* length) const {
    ReadArray(arguments_[argument], expected, data, length);
  }

  void ReadArray(napi_value array, napi_typedarray_type expected, void** data, size_t* length) const {
    napi_typedarray_type type;
    const napi_status status = napi_get_typedarray_info(env_, array, &type, length, data, nullptr, nullptr);
    Check(status == napi_ok && type == expected, "typed arrays: handles as Int32Array, flags as Uint8Array, values as Float32Array");
  }

  napi_env env_;
  std::array<napi_value, 9> arguments_{};
  tfnodejs::TFJSBackend* backend_ = nullptr;
  // Found when it is first needed: kernels need none.
  mutable tensorflow::Device* device_ = nullptr;
  const int32_t* handles_ = nullptr;
  size_t count_ = 0;
  std::vector<TFE_TensorHandle*> results_;
};

using Callback = napi_value (*)(Call&);

// The entry point for Node: converts C++ exceptions to JavaScript errors.
template <Callback Function>
napi_value Guarded(napi_env env, napi_callback_info info) {
  try {
    Call call(env, info);
    return Function(call);
  } catch (const std::invalid_argument& error) {
    napi_throw_error(env, nullptr, (std::string("a kernel of the binding takes ") + error.what()).c_str());
  } catch (const std::exception& error) {
    napi_throw_error(env, nullptr, error.what());
  }
  return nullptr;
}

// Adds an object with these functions to the exports of the binding.
inline void Define(napi_env env, napi_value exports, const char* name,
                   std::initializer_list<std::pair<const char*, napi_callback>> functions) {
  napi_value object;
  napi_create_object(env, &object);
  for (const auto& [key, callback] : functions) {
    napi_value function;
    napi_create_function(env, key, NAPI_AUTO_LENGTH, callback, nullptr, &function);
    napi_set_named_property(env, object, key, function);
  }
  napi_set_named_property(env, exports, name, object);
}
