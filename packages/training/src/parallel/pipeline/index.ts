export type { LayerSearch, PipelineModel, Recompute } from '../recipe.ts'
export { pipeline, wholeModel } from './create.ts'
export { cutBatch, type Batch, type Microbatches } from './microbatches.ts'
export type {
  Evaluation,
  GradientResult,
  ModelOptions,
  PipelineOptions,
  StepResult,
  WholeModelOptions,
} from './options.ts'
export type { Pipeline } from './pipeline.ts'
export {
  messageTime,
  pipelineReport,
  StepMeter,
  type MeasuredPass,
  type PipelineReport,
  type RankReport,
  type ReportOptions,
  type StepSample,
} from './report.ts'
export { splitLayers, type LayerRange, type Split, type SplitOptions } from './split.ts'
