// Adds `kernels` to the binding of @tensorflow/tfjs-node, into which it is compiled: functions that compute
// synchronously, in the calling thread, on the memory of tensors. They call TensorFlow only to allocate and to
// resolve handles. When ranks share cores, the code of TensorFlow's own operations would be evicted from the caches
// each time.
#include <node_api.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "functions.h"
#include "operations.h"

// The compiler's command line renames the binding's entry point to BINDING_ENTRY; Node calls the one in this file.
#undef napi_register_module_v1
extern "C" napi_value BINDING_ENTRY(napi_env env, napi_value exports);

namespace {

// copyOut([tensor], target): copies from any device, through host memory if needed
napi_value CopyOut(Call& call) {
  const std::unique_ptr<TF_Status, decltype(&TF_DeleteStatus)> status(TF_NewStatus(), TF_DeleteStatus);
  const std::unique_ptr<TF_Tensor, decltype(&TF_DeleteTensor)> tensor(
      TFE_TensorHandleResolve(call.Handle(0), status.get()), TF_DeleteTensor);
  if (tensor == nullptr) throw std::runtime_error(TF_Message(status.get()));
  Check(TF_TensorType(tensor.get()) == TF_FLOAT, "float32");
  const auto* values = static_cast<const float*>(TF_TensorData(tensor.get()));
  const int64_t size = TF_TensorElementCount(tensor.get());
  std::copy(values, values + size, call.Floats(1, size));
  return call.Results();
}

// copyIn(shape, source) -> a tensor of that shape
napi_value CopyIn(Call& call) {
  tensorflow::TensorShape shape;
  for (size_t i = 0; i < call.count(); i++) {
    Check(shape.AddDimWithStatus(call.handle(i)).ok(), "a shape");
  }
  const float* source = call.Floats(1, shape.num_elements());
  std::copy(source, source + shape.num_elements(), call.Create(shape));
  return call.Results();
}

// linearForward([x, weights..., biases...], relu) -> the output of each layer
napi_value LinearForward(Call& call) {
  const std::vector<bool> relu = call.Flags(1);
  const size_t layers = relu.size();
  Matrix input = call.Tensor(0);
  const float* x = input.data;
  Product product = {input.rows, 0, input.columns};
  for (size_t i = 0; i < layers; i++) {
    const Matrix weight = call.Tensor(1 + i);
    product = {product.rows, product.outputs, weight.columns};
    Check(weight.rows == product.inputs, "layers that fit one another");
    const Matrix bias = call.Tensor(1 + layers + i, 1, product.outputs);
    float* y = call.Create({product.rows, product.outputs});
    call.kernels->forward(product, x, weight.data, bias.data, relu[i], y);
    x = y;
  }
  return call.Results();
}

// The destination of the gradients of weights and biases, in this order: new tensors, existing sums, or arrays of the
// caller, whose contents are replaced or added to.
class ParameterSink {
 public:
  // `first`: index of the first sum among the tensors of the call, if there are sums. `arrays`: index of the argument
  // with the arrays, if any; the next argument tells whether to add to them.
  ParameterSink(Call& call, const std::vector<Matrix>& weights, size_t first, size_t arrays) : call_(call) {
    const size_t layers = weights.size();
    const bool has_arrays = call.Has(arrays);
    const bool has_sums = !has_arrays && call.count() > first;
    std::vector<int64_t> sizes;
    int64_t largest = 0;
    for (size_t i = 0; i < 2 * layers; i++) {
      const Matrix& weight = weights[i % layers];
      const bool is_bias = i >= layers;
      const int64_t rows = is_bias ? 1 : weight.rows;
      largest = std::max(largest, weight.size());
      sizes.push_back(rows * weight.columns);
      if (has_sums) {
        targets_.push_back(call.Tensor(first + i, rows, weight.columns));
      } else if (has_arrays) {
        targets_.push_back({nullptr, nullptr, rows, weight.columns});
      } else {
        const auto shape = is_bias ? tensorflow::TensorShape({weight.columns})
                                   : tensorflow::TensorShape({weight.rows, weight.columns});
        targets_.push_back({nullptr, call.Create(shape), rows, weight.columns});
      }
    }
    if (has_arrays) {
      const std::vector<float*> places = call.Arrays(arrays, sizes);
      for (size_t i = 0; i < places.size(); i++) targets_[i].data = places[i];
    }
    const bool adds = has_sums || (has_arrays && call.Flag(arrays + 1));
    if (adds) scratch_.reset(new float[largest]);
  }

  // Whether only the caller refers to the memory that is written.
  bool IsAlone() const {
    return std::all_of(targets_.begin(), targets_.end(),
                       [](const Matrix& target) { return target.tensor == nullptr || target.IsAlone(); });
  }

  void Take(size_t layer, Product product, const float* x, const float* dz) const {
    float* const weight = targets_[layer].data;
    float* const bias = targets_[targets_.size() / 2 + layer].data;
    call_.kernels->parameter_gradients(product, x, dz, scratch_.get(), weight, bias);
  }

 private:
  Call& call_;
  std::vector<Matrix> targets_;
  // Used if gradients are added to existing values.
  std::unique_ptr<float[]> scratch_;
};

// linearBackward([x, dy, weights..., outputs..., sums...], relu, needsInputGradient, arrays?, adds?)
//   -> gradients of the weights, of the biases, and of x if needed. If sums are given, the gradients are added to
//      them, and the result is only the gradient of x; or false if other tensors share the sums. If arrays are
//      given, the gradients are written or added to them, and the result is only the gradient of x
napi_value LinearBackward(Call& call) {
  const std::vector<bool> relu = call.Flags(1);
  const bool needs_input_gradient = call.Flag(2);
  const size_t layers = relu.size();
  const Matrix input = call.Tensor(0);
  std::vector<Matrix> weights, outputs;
  for (size_t i = 0; i < layers; i++) {
    const int64_t inputs = i == 0 ? input.columns : weights.back().columns;
    weights.push_back(call.Tensor(2 + i));
    Check(weights.back().rows == inputs, "layers that fit one another");
    outputs.push_back(call.Tensor(2 + layers + i, input.rows, weights.back().columns));
  }
  const ParameterSink sink(call, weights, 2 + 2 * layers, 3);
  if (!sink.IsAlone()) return call.Boolean(false);

  int64_t widest = 0;
  for (const Matrix& weight : weights) widest = std::max(widest, weight.columns);
  std::unique_ptr<float[]> current(new float[input.rows * widest]), next(new float[input.rows * widest]);
  const float* gradient = call.Tensor(1, input.rows, outputs.back().columns).data;
  for (size_t i = layers; i-- > 0;) {
    const Product product = {input.rows, weights[i].rows, weights[i].columns};
    if (relu[i]) {
      call.kernels->mask(outputs[i].size(), gradient, outputs[i].data, current.get());
      gradient = current.get();
    }
    sink.Take(i, product, i == 0 ? input.data : outputs[i - 1].data, gradient);
    if (i == 0 && !needs_input_gradient) break;
    float* dx = i == 0 ? call.Create({input.rows, input.columns}) : next.get();
    call.kernels->input_gradient(product, gradient, weights[i].data, dx);
    current.swap(next);
    gradient = dx;
  }
  return call.Results();
}

// linearBackwardInput([dy, weights..., outputs...], relu, needsInputGradient)
//   -> the gradient before each activation, and of x if needed
napi_value LinearBackwardInput(Call& call) {
  const std::vector<bool> relu = call.Flags(1);
  const bool needs_input_gradient = call.Flag(2);
  const size_t layers = relu.size();
  const int64_t rows = call.Tensor(0).rows;
  std::vector<Matrix> weights;
  std::vector<float*> dz;
  for (size_t i = 0; i < layers; i++) {
    weights.push_back(call.Tensor(1 + i));
    Check(i == 0 || weights[i].rows == weights[i - 1].columns, "layers that fit one another");
    dz.push_back(call.Create({rows, weights[i].columns}));
  }
  // The gradient of the output of a layer.
  const float* gradient = call.Tensor(0, rows, weights.back().columns).data;
  for (size_t i = layers; i-- > 0;) {
    const Product product = {rows, weights[i].rows, weights[i].columns};
    const Matrix output = call.Tensor(1 + layers + i, rows, product.outputs);
    if (relu[i]) {
      call.kernels->mask(output.size(), gradient, output.data, dz[i]);
    } else if (gradient != dz[i]) {
      std::copy(gradient, gradient + output.size(), dz[i]);
    }
    if (i == 0 && !needs_input_gradient) break;
    float* dx = i == 0 ? call.Create({rows, product.inputs}) : dz[i - 1];
    call.kernels->input_gradient(product, dz[i], weights[i].data, dx);
    gradient = dx;
  }
  return call.Results();
}

// linearBackwardParameters([x, gradients before each activation..., outputs of all but the last...], arrays?, adds?)
//   -> gradients of the weights and of the biases; nothing if they are written or added to arrays
napi_value LinearBackwardParameters(Call& call) {
  const size_t layers = call.count() / 2;
  const Matrix input = call.Tensor(0);
  Check(layers > 0, "one layer at least");
  std::vector<Matrix> weights, dz;
  for (size_t i = 0; i < layers; i++) {
    dz.push_back(call.Tensor(1 + i));
    Check(dz[i].rows == input.rows, "the same rows");
    weights.push_back({nullptr, nullptr, i == 0 ? input.columns : dz[i - 1].columns, dz[i].columns});
  }
  const ParameterSink sink(call, weights, call.count(), 1);
  for (size_t i = 0; i < layers; i++) {
    const Product product = {input.rows, weights[i].rows, weights[i].columns};
    const Matrix x = i == 0 ? input : call.Tensor(layers + i, input.rows, product.inputs);
    sink.Take(i, product, x.data, dz[i].data);
  }
  return call.Results();
}

// The tensors of an optimizer, of which the first `changed` are written. The gradient comes last, as a tensor or as
// the array after `numbers` numbers.
bool ReadUpdate(const Call& call, size_t changed, size_t numbers, std::vector<Matrix>& tensors) {
  for (size_t i = 0; i < changed; i++) {
    tensors.push_back(call.Tensor(i));
    Check(tensors[i].size() == tensors[0].size(), "tensors of one size");
    if (!tensors[i].IsAlone()) return false;
  }
  if (call.Has(1 + numbers)) {
    const int64_t size = tensors[0].size();
    tensors.push_back({nullptr, call.Floats(1 + numbers, size), 1, size});
  } else {
    tensors.push_back(call.Tensor(changed));
    Check(tensors[changed].size() == tensors[0].size(), "tensors of one size");
  }
  return true;
}

// descend([value, gradient], rate) or descend([value], rate, gradient)
//   -> true if done; false if another tensor shares the value
napi_value Descend(Call& call) {
  std::vector<Matrix> t;
  if (!ReadUpdate(call, 1, 1, t)) return call.Boolean(false);
  call.kernels->descend(t[0].size(), call.Number(1), t[1].data, t[0].data);
  return call.Boolean(true);
}

// descendWithMomentum([value, velocity, gradient], rate, momentum) -> as descend
napi_value DescendWithMomentum(Call& call) {
  std::vector<Matrix> t;
  if (!ReadUpdate(call, 2, 2, t)) return call.Boolean(false);
  call.kernels->descend_with_momentum(t[0].size(), call.Number(1), call.Number(2), t[2].data, t[1].data, t[0].data);
  return call.Boolean(true);
}

// adam([value, mean, square, gradient], power1, power2, learningRate, beta1, beta2, epsilon, keep) -> as descend
napi_value Adam(Call& call) {
  std::vector<Matrix> t;
  AdamFactors factors;
  float* const numbers[] = {&factors.power1, &factors.power2, &factors.learning_rate,
                            &factors.beta1,  &factors.beta2,  &factors.epsilon,
                            &factors.keep};
  if (!ReadUpdate(call, 3, std::size(numbers), t)) return call.Boolean(false);
  for (size_t i = 0; i < std::size(numbers); i++) *numbers[i] = call.Number(1 + i);
  call.kernels->adam(t[0].size(), factors, t[3].data, t[1].data, t[2].data, t[0].data);
  return call.Boolean(true);
}

}  // namespace

extern "C" NAPI_MODULE_EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  napi_value binding = BINDING_ENTRY(env, exports);
  static thread_local SignalStack signal_stack;
  Define(env, exports, "functions", {{"define", Guarded<DefineFunction>}, {"call", Guarded<CallFunction>}});
  if (FindKernels() != nullptr) {
    Define(env, exports, "kernels",
           {
               {"copyOut", Guarded<CopyOut>},
               {"copyIn", Guarded<CopyIn>},
               {"linearForward", Guarded<LinearForward>},
               {"linearBackward", Guarded<LinearBackward>},
               {"linearBackwardInput", Guarded<LinearBackwardInput>},
               {"linearBackwardParameters", Guarded<LinearBackwardParameters>},
               {"descend", Guarded<Descend>},
               {"descendWithMomentum", Guarded<DescendWithMomentum>},
               {"adam", Guarded<Adam>},
           });
    // Older bindings have no operations, and their kernels take other arguments.
    napi_value yes;
    napi_get_boolean(env, true, &yes);
    napi_set_named_property(env, exports, "hasOperations", yes);
  }
  return binding;
}
