export type { MetricLog } from './metric-log.ts'
