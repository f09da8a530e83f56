export {
  Adam,
  AdamW,
  SGD,
  type AdamOptions,
  type AdamWOptions,
  type SGDOptions,
} from './algorithms.ts'
export {
  clipGradients,
  type ClipGroups,
  type ClipOptions,
  type ClippedGradients,
  type ClippedParameter,
} from './clip.ts'
export { flatten, type FlatLayout, type FlatSlot } from './flat-gradients.ts'
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
