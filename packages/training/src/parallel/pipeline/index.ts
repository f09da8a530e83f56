export { measureSchedules, type MeasuredSchedule, type MeasureOptions } from './measure.ts'
export { measureCosts, type MeasureCostsOptions } from './measure-costs.ts'
export { StepMeter, type StepSample } from './meter.ts'
export type { Batch, LayerSearch, PipelineModel } from './model.ts'
export type { Evaluation, GradientResult, PipelineOptions, StepResult } from './options.ts'
export { pipeline, type Pipeline } from './pipeline.ts'
export {
  messageTime,
  pipelineReport,
  type PipelineReport,
  type RankReport,
  type ReportOptions,
} from './report.ts'
export * from './schedule/index.ts'
export { splitLayers, type LayerRange, type Split, type SplitOptions } from './split-layers.ts'
