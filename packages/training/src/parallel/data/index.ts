// Export `BatchNorm` also as SyncBatchNorm, its name in PyTorch.
export { BatchNorm, BatchNorm as SyncBatchNorm, type BatchNormOptions } from './batch-norm.ts'
export type { Replicated } from '../gradients/averaging.ts'
export type { Traffic } from '../gradients/exchange.ts'
export type { DataParallelOptions, WireFormat } from '../gradients/options.ts'
export { dataParallel, type DataParallel, type JoinOptions } from './data-parallel.ts'
