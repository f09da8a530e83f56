export {
  durationText,
  millisecondsText,
  numberText,
  percentText,
} from '../../packages/observe/page/formats.ts'
export { alignClocks } from '../../packages/observe/src/trace/clocks.ts'
export { SpanFileReader } from '../../packages/observe/src/trace/span-file-reader.ts'
export { serveDashboard } from '../../packages/observe/src/dashboard/server.ts'
export { followSteps } from '../../packages/observe/src/dashboard/step-tail.ts'
export {
  jobMetrics,
  type MeasuredRank,
  metricText,
  serveMetrics,
} from '../../packages/observe/src/prometheus.ts'
