export { measureCosts, type MeasureCostsOptions } from './measure-costs.ts'
export {
  messageTime,
  pipelineReport,
  StepMeter,
  type PassSample,
  type PipelineReport,
  type RankReport,
  type ReportOptions,
  type StepSample,
} from './report.ts'
