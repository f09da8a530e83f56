export type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
export type {
  CallOptions,
  MessageOptions,
  ProcessGroup,
  ReduceOp,
  ReduceOptions,
  Work,
  WorkTiming,
} from './process-group.ts'
