// Internals for packages that add a backend. They change without notice: those packages depend on the same
// version.
export { loadedModules } from './host/tfjs.ts'
export { isRepeatable, type Module, operationsOf, partsOf } from './model/module.ts'
export type { LinearLayer, Operation } from './model/operation.ts'
export type { Parameter } from './model/parameter.ts'
export {
  checkedRecording,
  type GradientListener,
  type GradientPlaces,
  placesOf,
  type Recording,
} from './model/recording.ts'
export { correctNegativeAxes } from './tfjs/correct-kernels.ts'
export type {
  BackendFacts,
  EvaluatedLoss,
  Gradient,
  LabelTargets,
  OperationPasses,
  Storage,
  Store,
  TensorBackend,
  UpdatesInPlace,
} from './tfjs/backend.ts'
export { genericBackend } from './tfjs/generic-backend.ts'
export { countCopy, type HostArray, type HostDType, sizeOf } from './tfjs/host-arrays.ts'
export { type KernelCall, replaceKernel, runKernel, type Tensor, tf } from './tfjs/tfjs.ts'
export { correctVolumes } from './tfjs/volumes.ts'
export {
  type Border,
  borderOf,
  padded,
  paddedShape,
  type Places,
  poolingPlaces,
  reshaped,
  type Shape,
  type WindowAttributes,
  windowPlaces,
  withoutBorder,
} from './tfjs/window-places.ts'
