export { SpanRecorder, type SpanRecorderOptions } from './recorder.ts'
export { spanKinds, type Span, type SpanFacts, type SpanKind } from './span.ts'
export { drawTimeline, type TimelineOptions } from './timeline.ts'
