export { readFlightFolder, type FlightFolder } from './flight-folder.ts'
export {
  flightDump,
  writeFlightDump,
  type FailedWorld,
  type FlightDump,
  type FlightEntry,
  type FlightGroup,
  type FlightHeader,
  type FlightState,
  type RankEnd,
} from './flight-records.ts'
export { parseStepRange, STEP_RANGE, type StepRange } from './rank-trace.ts'
export {
  NAME,
  NAME_HEAD,
  parseSpanFileName,
  SPAN_HEAD,
  spanFileHeader,
  spansFolder,
  TRACE_FILE,
  type SpanFileHeader,
} from './span-file.ts'
export {
  actionKinds,
  factNames,
  isOperationKind,
  SpanRecorder,
  spanKinds,
  timeSpan,
  timeWait,
  traceWait,
  type Span,
  type SpanFacts,
  type SpanKind,
  type SpanRecorderOptions,
} from './spans.ts'
export {
  activityOf,
  readStatusPage,
  StatusPage,
  type LinkBytes,
  type RankActivity,
  type RankStatus,
  type StatusIdentity,
  type StatusSnapshot,
} from './status-page.ts'
export {
  rankStates,
  STATUS_NAME,
  statusBytes,
  StatusSlot,
  type RankFate,
  type RankState,
} from './status-slot.ts'
export { drawTimeline, type TimelineOptions } from './timeline.ts'
