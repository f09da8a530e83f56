export { SpanRecorder, type SpanRecorderOptions } from './spans.ts'
export { spanKinds, type Span, type SpanFacts, type SpanKind } from './spans.ts'
export { drawTimeline, type TimelineOptions } from './timeline.ts'
export {
  FLIGHT_FORMAT,
  FLIGHT_VERSION,
  flightStates,
  type FlightDump,
  type FlightEntry,
  type FlightGroup,
  type FlightHeader,
  type FlightState,
} from './flight-records.ts'
export { readFlightFolder, writeFlightDump, type FlightFolder } from './flight-records.ts'
export type { FlightFinding } from './flight-findings.ts'
export { mergeFlight } from './flight-merge.ts'
export { describeFinding } from './flight-findings.ts'
export {
  HEADER_BYTES as STATUS_HEADER_BYTES,
  SLOT_BYTES as STATUS_SLOT_BYTES,
  STATUS_NAME,
  statusBytes,
  type RankState,
} from './status-slot.ts'
export {
  readStatusPage,
  StatusPage,
  type RankStatus,
  type StatusIdentity,
  type StatusSnapshot,
} from './status-page.ts'
export { StatusSlot } from './status-slot.ts'
