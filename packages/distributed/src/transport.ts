/*
 * What a package that adds a transport needs, as `@tsrun/mpi` does. This entry is unstable: any
 * release may change it, so such a package depends on one exact version.
 */
export { arithmeticOf, until, type Channel, type Steps, type Waited } from './algorithms/channel.ts'
export { slicesOf, type Slice } from './algorithms/pieces.ts'
export type { Heap } from './arena/heap.ts'
export { dtypes, type DType } from './dtype.ts'
export { instantiateKernels, type Kernels } from './kernels/kernels.ts'
export { isCollective, reducing, type Operation } from './operation.ts'
export type { Reduction } from './reduction.ts'
export type { JobOptions, JoinedJob, TransportPlugIn } from './transports/plug-in.ts'
export type {
  BlockingTransport,
  GroupFacts,
  RunningOperation,
  TransportCollectives,
} from './transports/transport.ts'
