export {
  dataParallel,
  type DataParallel,
  type DataParallelOptions,
  type JoinOptions,
  type Replicated,
} from './data-parallel.ts'
export type { Traffic } from './reducer.ts'
export type { WireFormat } from './wire.ts'
