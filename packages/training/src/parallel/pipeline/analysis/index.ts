export { measureCosts, type MeasureCostsOptions } from './measure-costs.ts'
export { measureSchedules, type MeasuredSchedule, type MeasureOptions } from './measure.ts'
export { StepMeter, type StepSample } from './meter.ts'
export {
  messageTime,
  pipelineReport,
  type PipelineReport,
  type RankReport,
  type ReportOptions,
} from './report.ts'
