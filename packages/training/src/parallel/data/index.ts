export { dataParallel, type DataParallel, type JoinOptions } from './data-parallel.ts'
export type { DataParallelOptions, Replicated } from './options.ts'
export type { Traffic } from './reducer.ts'
export type { WireFormat } from './wire.ts'
