export type { Batch, PipelineModel, SummedLoss } from './model.ts'
export {
  pipeline,
  type Evaluation,
  type GradientResult,
  type Pipeline,
  type PipelineOptions,
  type StepResult,
} from './pipeline.ts'
export * from './schedule/index.ts'
export { splitLayers, type LayerRange } from './split-layers.ts'
