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
export * from './parallelize.ts'
export { recordSegments } from './record-segments.ts'
