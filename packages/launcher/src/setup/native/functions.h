// Functions of TensorFlow: many operations that one call runs, planned and placed once.
#pragma once
#include <memory>
#include <string>

#include "call.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/c/eager/c_api.h"

// define(outputs, graph, inputs, number): adds the function `tsrun_<number>` to the context. `graph` is a serialized
// GraphDef whose nodes are `n<index>`; the first `inputs` of them are placeholders, the arguments of the function.
// `outputs` has a node and the number of one of its outputs for each result.
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
  return call.Results();
}
