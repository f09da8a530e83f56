export { DashboardFeed, type DashboardSources } from './dashboard/feed.ts'
export { RecordedPage, type RecordedPageOptions } from './dashboard/recorded-page.ts'
export { DashboardServer, type DashboardServerOptions } from './dashboard/server.ts'
export type {
  ChartPoint,
  DashboardUpdate,
  JobPhase,
  JobView,
  LinksView,
  LogLine,
  RankView,
  StepView,
} from './dashboard/views.ts'
export { StepTail } from './dashboard/step-tail.ts'
export {
  Arrivals,
  divideWindow,
  stepParts,
  type Arrival,
  type Piece,
  type StepPart,
  type Window,
} from './trace/division.ts'
export { exportSpans, type ExportOptions, type OpenTelemetryTracer } from './opentelemetry.ts'
export { expositionText, type MetricFamily } from './prometheus/exposition.ts'
export { jobMetrics, type MeasuredJob, type MeasuredRank } from './prometheus/rank-metrics.ts'
export { MetricsServer, type MetricsServerOptions } from './prometheus/server.ts'
export {
  shareOfPart,
  shareTitles,
  timeShares,
  type TimeShare,
  type TimeShares,
} from './trace/shares.ts'
export { summarizeTrace, type RankSummary, type TraceSummary } from './trace/summary.ts'
export { durationText, percentText, summarySentences } from './trace/summary-text.ts'
export type { PathShare } from './trace/critical-path.ts'
export { writeChromeTrace } from './trace/chrome-trace.ts'
export { findTracedRun, type TracedRun } from './trace/traced-run.ts'
