// What packages with a backend of their own need of this one. It changes without notice: those packages
// depend on the same version.
export { loadedModules } from './host/tfjs.ts'
export { type Module, isRepeatable, partsOf } from './model/module.ts'
export type { Parameter } from './model/parameter.ts'
export {
  type GradientListener,
  type GradientPlaces,
  type Recording,
  checkedRecording,
  placesOf,
} from './model/recording.ts'
export { correctNegativeAxes } from './tfjs/array-gradients.ts'
export type {
  BackendFacts,
  EvaluatedLoss,
  Gradient,
  LabelTargets,
  LinearLayer,
  LinearPasses,
  Storage,
  Store,
  TensorBackend,
  UpdatesInPlace,
} from './tfjs/backend.ts'
export { genericBackend } from './tfjs/generic-backend.ts'
export { type HostArray, type HostDType, countCopy, sizeOf } from './tfjs/host-arrays.ts'
export { everyStride } from './tfjs/single-windows.ts'
export { type KernelCall, type Tensor, replaceKernel, runKernel, tf } from './tfjs/tfjs.ts'
export { correctVolumes } from './tfjs/volumes.ts'
export {
  type Border,
  type Places,
  type Places3d,
  type Shape,
  type WindowAttributes,
  borderOf,
  convolutionPlaces,
  convolutionPlaces3d,
  poolingPlaces,
  poolingPlaces3d,
} from './tfjs/window-places.ts'
