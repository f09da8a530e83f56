export type { TrainableModel } from './assemble.ts'
export type { AnyBatch, BatchArray, BatchPart } from './batch.ts'
export {
  earlyStopping,
  findRate,
  movingAverage,
  type EarlyStoppingOptions,
  type EvaluationInfo,
  type FindRateOptions,
  type FitCallback,
  type FoundRate,
  type MovingAverage,
  type StepInfo,
} from './callbacks.ts'
export type { Batches as FitBatches, EvaluationData, FitData } from './fit-data.ts'
export type {
  EvaluateOptions,
  FitEnd,
  FitOptions,
  FitResult,
  SavingOptions,
} from './fit-options.ts'
export type { AnyMesh, Layout, MeshShape } from './layout.ts'
export type { TrainerOptions } from './options.ts'
export { trainer, type Trainer, type TrainerStep } from './trainer.ts'
