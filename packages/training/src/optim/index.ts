export { Adam } from './adam.ts'
export { AdamW, type AdamWOptions } from './adamw.ts'
export type { AdamOptions } from './adaptive.ts'
export type { DecayOptions } from './decay.ts'
export {
  clipGradients,
  type ClipGroups,
  type ClipOptions,
  type ClippedGradients,
  type ClippedParameter,
} from './clip.ts'
export { flatten, type FlatLayout, type FlatSlot } from './flatten.ts'
export { gatherGradients, type GatheredGradients } from './gather.ts'
export { gradientNorm, type GradientNormOptions, type NormPart } from './gradient-norm.ts'
export { sumInto } from '../autograd/sum-gradients.ts'
export type { Gradients, Optimizer } from './optimizer.ts'
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
export type { OptimizerState, ParameterState } from './state.ts'
