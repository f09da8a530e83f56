export type { ColumnParallelOptions, RowParallelOptions } from './layers.ts'
export {
  copyToRanks,
  gatherPartial,
  gatherReplicated,
  scatterToRanks,
  sumOverRanks,
} from './operations.ts'
export {
  columnParallel,
  parallelize,
  rowParallel,
  type LinearLayers,
  type ParallelPlan,
  type ParallelStyle,
} from './parallelize.ts'
