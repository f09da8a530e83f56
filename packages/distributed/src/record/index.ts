export { activityOf, type RankActivity } from './activity.ts'
export { currentTrace, traceWait } from './current-trace.ts'
export type { FailedWorld, RankEnd } from './failed-world.ts'
export { readFlightFolder, type FlightFolder } from './flight-folder.ts'
export {
  FLIGHT_FORMAT,
  FLIGHT_VERSION,
  flightStates,
  flightDump,
  writeFlightDump,
  type FlightDump,
  type FlightEntry,
  type FlightGroup,
  type FlightHeader,
  type FlightState,
} from './flight-records.ts'
export {
  beginTrace,
  parseStepRange,
  STEP_RANGE,
  type RankTrace,
  type StepRange,
} from './rank-trace.ts'
export { NAME, NAME_HEAD, SPAN_HEAD, spanFileHeader, type SpanFileHeader } from './span-file.ts'
export {
  actionKinds,
  factNames,
  isOperationKind,
  SpanRecorder,
  spanKinds,
  timeSpan,
  timeWait,
  type Span,
  type SpanFacts,
  type SpanKind,
  type SpanRecorderOptions,
} from './spans.ts'
export {
  readStatusPage,
  StatusPage,
  type LinkBytes,
  type RankStatus,
  type StatusIdentity,
  type StatusSnapshot,
} from './status-page.ts'
export {
  STATUS_HEADER_BYTES,
  LINK_NUMBERS,
  linkNumber,
  rankStates,
  STATUS_SLOT_BYTES,
  STATUS_NAME,
  statusBytes,
  StatusSlot,
  type RankFate,
  type RankState,
} from './status-slot.ts'
export { drawTimeline, type TimelineOptions } from './timeline.ts'
export { parseSpanFileName, spansFolder, TRACE_FILE } from './trace-folder.ts'
