// Adds a function to the binding of @tensorflow/tfjs-node, and is compiled with it: addFunction gives
// TensorFlow a function of operations (a serialized FunctionDef), which executeOp calls by its name.
#include <node_api.h>

#include "binding/tf_auto_status.h"
#include "binding/tfjs_backend.h"
#include "tensorflow/c/eager/tfe_context_internal.h"
#include "tensorflow/core/common_runtime/eager/context.h"
#include "tensorflow/core/framework/function.h"

// The command line renames the binding's own entry to BINDING_ENTRY: this file has Node's.
#undef napi_register_module_v1
extern "C" napi_value BINDING_ENTRY(napi_env env, napi_value exports);

namespace {

// Functions run in the thread that calls them: to have another do it and to wait for it takes as long
// as small operations do, and where cores are shared, until the scheduler comes round.
void RunInCaller(TFE_Context* context) {
  auto* eager = tensorflow::ContextFromInterface(tensorflow::unwrap(context));
  auto* library = eager->func_lib(eager->HostCPU());
  if (library == nullptr || library->runner() == nullptr) return;
  *library->runner() = [](std::function<void()> closure) { closure(); };
}

napi_value AddFunction(napi_env env, napi_callback_info info) {
  size_t argc = 1;
  napi_value argument;
  bool is_typed_array = false;
  if (napi_get_cb_info(env, info, &argc, &argument, nullptr, nullptr) != napi_ok || argc < 1 ||
      napi_is_typedarray(env, argument, &is_typed_array) != napi_ok || !is_typed_array) {
    napi_throw_type_error(env, nullptr, "addFunction() takes a FunctionDef as a Uint8Array");
    return nullptr;
  }
  void* bytes = nullptr;
  size_t length = 0;
  tfnodejs::TFJSBackend* backend = nullptr;
  napi_get_typedarray_info(env, argument, nullptr, &length, &bytes, nullptr, nullptr);
  napi_get_instance_data(env, reinterpret_cast<void**>(&backend));
  if (bytes == nullptr || backend == nullptr) {
    napi_throw_error(env, nullptr, "addFunction() found no bytes, or no backend");
    return nullptr;
  }
  // The context is private to the backend: hence -fno-access-control.
  TFE_Context* context = backend->tfe_context_;
  RunInCaller(context);
  tfnodejs::TF_AutoStatus status;
  TFE_ContextAddFunctionDef(context, static_cast<const char*>(bytes), length, status.status);
  if (TF_GetCode(status.status) != TF_OK) napi_throw_error(env, nullptr, TF_Message(status.status));
  return nullptr;
}

}  // namespace

extern "C" NAPI_MODULE_EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  napi_value binding = BINDING_ENTRY(env, exports);
  napi_value function;
  if (napi_create_function(env, "addFunction", NAPI_AUTO_LENGTH, AddFunction, nullptr, &function) != napi_ok ||
      napi_set_named_property(env, exports, "addFunction", function) != napi_ok) {
    napi_throw_error(env, nullptr, "addFunction() could not be added to the binding");
  }
  return binding;
}
