export type { TrainableModel } from './assemble.ts'
export type { AnyBatch, BatchArray, BatchPart } from './batch.ts'
export type { Batches as FitBatches, EvaluationData, FitData } from './fit-data.ts'
export {
  earlyStopping,
  type EvaluateOptions,
  type EvaluationInfo,
  type FitCallback,
  type FitEnd,
  type FitOptions,
  type FitResult,
  type SavingOptions,
  type StepInfo,
} from './fit-options.ts'
export type { AnyMesh, Layout, MeshShape } from './layout.ts'
export type { TrainerOptions } from './options.ts'
export { trainer, type Trainer, type TrainerStep } from './trainer.ts'
