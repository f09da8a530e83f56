// The part of the API that also runs in web pages. `@tsrun/distributed` exports it too.
export { algorithmsOf } from './algorithms/select.ts'
export type {
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  ReduceOptions,
} from './call-options.ts'
export type { LinkStatistics } from './diagnosis/journal.ts'
export type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
export type { MessageEvent } from './engine/message-tap.ts'
export type { DeviceMesh, MeshFacts } from './groups/mesh.ts'
export { connectPorts, joinPorts, type JoinPortsOptions } from './join-ports.ts'
export type { AlgorithmName, OperationName } from './operation.ts'
export type { PersistentOperation } from './persistent-operation.ts'
export type {
  BatchedMessage,
  BlockingCalls,
  GroupRelations,
  JoinOptions,
  NewGroupOptions,
  PersistentCalls,
  ProcessGroup,
  ReceivedObject,
  Source,
  Work,
  WorkTiming,
} from './process-group.ts'
export type { FailedWorld, RankEnd } from './record/flight-records.ts'
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
export type { ReduceOp } from './reduction.ts'
export { runWorld, type RankError, type WorldOptions } from './run-world.ts'
export type { FaultSource, WorldFault } from './runners/world-faults.ts'
export type { Port } from './transports/port-transport.ts'
