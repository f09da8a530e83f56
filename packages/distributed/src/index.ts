export * from './functions.ts'
export type { LinkStatistics } from './diagnosis/link-counters.ts'
export * from './group-functions.ts'
export { algorithmsOf } from './algorithms/select.ts'
export type { InitOptions, TransportName } from './groups/join/options.ts'
export type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
export type { AlgorithmName, OperationName } from './operation.ts'
export type { DeviceMesh, MeshFacts } from './groups/mesh.ts'
export { runWorld, type WorldOptions } from './run-world.ts'
export type { WorldFault } from './runners/world-faults.ts'
export type {
  BatchedMessage,
  BlockingCalls,
  GroupRelations,
  JoinOptions,
  NewGroupOptions,
  ProcessGroup,
  ReceivedObject,
  Source,
  Work,
  WorkTiming,
  PersistentCalls,
} from './process-group.ts'
export type {
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  MonitoredBarrierOptions,
  ReduceOptions,
} from './call-options.ts'
export type { PersistentOperation } from './persistent-operation.ts'
export { premulSum, type PremulSum, type ReduceOp, type ReductionName } from './reduction.ts'
export {
  SpanRecorder,
  spanKinds,
  timeSpan,
  type Span,
  type SpanFacts,
  type SpanKind,
  type SpanRecorderOptions,
} from './record/spans.ts'
export { drawTimeline, type TimelineOptions } from './record/timeline.ts'
