// TensorFlow functions: graphs of many operations, which one call runs and which are planned and placed once.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/c/eager/c_api.h"
#include "tensorflow/core/common_runtime/rendezvous_mgr.h"
#include "tensorflow/core/framework/function.h"

inline void Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

// define(outputs, graph, inputs, number) -> defines the function `tsrun_<number>` for `call`. `graph` is a serialized
// GraphDef with nodes named `n<index>`; the first `inputs` nodes are placeholders for the arguments. `outputs` has,
// for each result, a node and the index of one of its outputs.
inline napi_value DefineFunction(Call& call) {
  const std::unique_ptr<TF_Status, decltype(&TF_DeleteStatus)> status(TF_NewStatus(), TF_DeleteStatus);
  const auto check = [&status] {
    if (TF_GetCode(status.get()) != TF_OK) throw std::runtime_error(TF_Message(status.get()));
  };
  const std::unique_ptr<TF_Graph, decltype(&TF_DeleteGraph)> graph(TF_NewGraph(), TF_DeleteGraph);
  const auto [data, size] = call.Bytes(1);
  const std::unique_ptr<TF_Buffer, decltype(&TF_DeleteBuffer)> nodes(TF_NewBufferFromString(data, size),
                                                                     TF_DeleteBuffer);
  const std::unique_ptr<TF_ImportGraphDefOptions, decltype(&TF_DeleteImportGraphDefOptions)> options(
      TF_NewImportGraphDefOptions(), TF_DeleteImportGraphDefOptions);
  TF_GraphImportGraphDef(graph.get(), nodes.get(), options.get(), status.get());
  check();
  const auto find = [&graph](int node, int output) {
    TF_Operation* operation = TF_GraphOperationByName(graph.get(), ("n" + std::to_string(node)).c_str());
    Check(operation != nullptr && output < TF_OperationNumOutputs(operation), "outputs of nodes of the graph");
    return TF_Output{operation, output};
  };
  std::vector<TF_Output> inputs, outputs;
  const int count = static_cast<int>(call.Number(2));
  for (int i = 0; i < count; i++) inputs.push_back(find(i, 0));
  for (size_t i = 0; i + 1 < call.count(); i += 2) outputs.push_back(find(call.handle(i), call.handle(i + 1)));
  const std::string name = "tsrun_" + std::to_string(static_cast<int>(call.Number(3)));
  const std::unique_ptr<TF_Function, decltype(&TF_DeleteFunction)> function(
      TF_GraphToFunction(graph.get(), name.c_str(), 0, -1, nullptr, count, inputs.data(),
                         static_cast<int>(outputs.size()), outputs.data(), nullptr, nullptr, nullptr, status.get()),
      TF_DeleteFunction);
  check();
  TFE_ContextAddFunction(call.context(), function.get(), status.get());
  check();
  tensorflow::FunctionLibraryRuntime::InstantiateOptions instantiation;
  instantiation.executor_type = "SINGLE_THREADED_EXECUTOR";
  // Fail here, and not in the first call, if the device has no kernel for an operation.
  instantiation.create_kernels_eagerly = true;
  if (call.IsOnHost()) {
    // Only these functions are rewritten for oneDNN, like TensorFlow's single operations.
    instantiation.target = call.device()->name();
    instantiation.is_multi_device_function = true;
    instantiation.input_devices.assign(count, instantiation.target);
    instantiation.allow_small_function_optimizations = true;
  }
  tensorflow::FunctionLibraryRuntime::Handle handle;
  Check(call.runtime().Instantiate(name, {}, instantiation, &handle));
  return call.Result(static_cast<double>(handle));
}

// call(inputs, function) -> the results of a defined function, as new tensors
inline napi_value CallFunction(Call& call) {
  std::vector<tensorflow::Tensor> inputs, outputs;
  for (size_t i = 0; i < call.count(); i++) inputs.push_back(call.TensorOnDevice(i));
  tensorflow::FunctionLibraryRuntime::Options options;
  std::function<void(std::function<void()>)> runner = [](const std::function<void()>& run) { run(); };
  options.runner = &runner;
  // For operations whose values are in host memory.
  tensorflow::PrivateIntraProcessRendezvous rendezvous(call.devices());
  options.rendezvous = &rendezvous;
  options.run_all_kernels_inline = true;
  const auto function = static_cast<tensorflow::FunctionLibraryRuntime::Handle>(call.Number(1));
  Check(call.IsOnHost() ? call.eager().pflr()->RunSync(options, function, inputs, &outputs)
                        : call.runtime().RunSync(options, function, inputs, &outputs));
  for (tensorflow::Tensor& output : outputs) call.Add(std::move(output));
  return call.Results();
}
