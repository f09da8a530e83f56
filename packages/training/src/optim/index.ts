export { Adam, AdamW, type AdamOptions, type AdamWOptions } from './adam.ts'
export {
  clipGradients,
  type ClipGroups,
  type ClipOptions,
  type ClippedGradients,
  type ClippedParameter,
} from './clip.ts'
export {
  flatten,
  gatherGradients,
  type FlatLayout,
  type FlatSlot,
  type GatheredGradients,
} from './flat-gradients.ts'
export { gradientNorm, type GradientNormOptions, type NormPart } from './gradient-norm.ts'
export type { DecayOptions, Optimizer } from './optimizer.ts'
export type { Gradients, OptimizerState, ParameterState } from './state.ts'
export {
  constantRate,
  warmupCosine,
  warmupStableDecay,
  type ConstantRateOptions,
  type LearningRateSchedule,
  type WarmupCosineOptions,
  type WarmupStableDecayOptions,
} from './schedules.ts'
export { SGD, type SGDOptions } from './sgd.ts'
