export { parseFlightDump } from '../../../packages/distributed/src/record/flight-records.ts'
export { openRankTrace } from '../../../packages/distributed/src/record/rank-trace.ts'
export {
  openSpanFile,
  type SpanFile,
  type SpanFileOwner,
} from '../../../packages/distributed/src/record/span-file.ts'
export { sendSpansTo } from '../../../packages/distributed/src/record/spans.ts'
