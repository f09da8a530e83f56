export { vocabParallelCrossEntropy } from './cross-entropy.ts'
export type { ColumnParallelOptions, RowParallelOptions, VocabParallelOptions } from './layers.ts'
export {
  copyToRanks,
  gatherPartial,
  gatherReplicated,
  gatherSequence,
  scatterSequence,
  scatterToRanks,
  sumOverRanks,
} from './operations.ts'
export {
  columnParallel,
  parallelize,
  rowParallel,
  sequenceParallel,
  vocabParallel,
  type ParallelPlan,
  type ParallelStyle,
} from './parallelize.ts'
export { recordSegments } from './record-segments.ts'
