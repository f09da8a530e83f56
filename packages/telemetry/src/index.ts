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
  FLIGHT_FORMAT,
  FLIGHT_VERSION,
  flightStates,
  isFlightDump,
  readFlightFolder,
  writeFlightDump,
  type FlightDump,
  type FlightEntry,
  type FlightFolder,
  type FlightGroup,
  type FlightHeader,
  type FlightState,
} from './flight-records.ts'
export {
  Arrivals,
  divideWindow,
  stepParts,
  type Arrival,
  type Piece,
  type StepPart,
  type Window,
} from './trace/division.ts'
export {
  beginTrace,
  currentTrace,
  parseStepRange,
  STEP_RANGE,
  traceWait,
  type RankTrace,
  type StepRange,
} from './trace/rank-trace.ts'
export { exportSpans, type ExportOptions, type OpenTelemetryTracer } from './opentelemetry.ts'
export { expositionText, type MetricFamily } from './prometheus/exposition.ts'
export { jobMetrics, type MeasuredJob, type MeasuredRank } from './prometheus/rank-metrics.ts'
export { MetricsServer, type MetricsServerOptions } from './prometheus/server.ts'
export {
  SpanRecorder,
  spanKinds,
  timeSpan,
  timeWait,
  type Span,
  type SpanFacts,
  type SpanKind,
  type SpanRecorderOptions,
} from './spans.ts'
export { activityOf, type RankActivity } from './activity.ts'
export {
  readStatusPage,
  StatusPage,
  type LinkBytes,
  type RankStatus,
  type StatusIdentity,
  type StatusSnapshot,
} from './status-page.ts'
export {
  HEADER_BYTES as STATUS_HEADER_BYTES,
  SLOT_BYTES as STATUS_SLOT_BYTES,
  STATUS_NAME,
  LINK_NUMBERS,
  linkNumber,
  rankStates,
  statusBytes,
  StatusSlot,
  type RankFate,
  type RankState,
} from './status-slot.ts'
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
export { spansFolder } from './trace/trace-folder.ts'
export { findTracedRun, type TracedRun } from './trace/traced-run.ts'
export { drawTimeline, type TimelineOptions } from './timeline.ts'
