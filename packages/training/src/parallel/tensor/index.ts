export { vocabParallelCrossEntropy } from './cross-entropy.ts'
export { parallelizeLayers } from './dense-layers.ts'
export type { ColumnParallelOptions, RowParallelOptions } from './layers.ts'
export {
  copyToRanks,
  gatherPartial,
  gatherReplicated,
  gatherSequence,
  scatterSequence,
  scatterToRanks,
  sumOverRanks,
} from './operations.ts'
export { parallelize, type ParallelPlan } from './parallelize.ts'
export { recordSegments } from './record-segments.ts'
export {
  columnParallel,
  gptPlan,
  rowParallel,
  sequenceParallel,
  vocabParallel,
  type GptPlanOptions,
  type ParallelStyle,
} from './styles.ts'
export type { VocabParallelOptions } from './vocabulary.ts'
