export * from './functions.ts'
export type { InitOptions, TransportName } from './group/init-options.ts'
export type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
export type { DeviceMesh, MeshFacts } from './group/mesh.ts'
export type { NewGroupOptions } from './group/new-group.ts'
export { runWorld, type WorldOptions } from './hosts/world.ts'
export type {
  CallOptions,
  MessageOptions,
  ProcessGroup,
  ReduceOp,
  ReduceOptions,
  Work,
  WorkTiming,
} from './process-group.ts'
