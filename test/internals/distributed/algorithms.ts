export type { Layout } from '../../../packages/distributed/src/algorithms/channel.ts'
export {
  cutIntoChunks,
  cutIntoSegments,
  segmentBytes,
} from '../../../packages/distributed/src/algorithms/pieces.ts'
export {
  chooseAlgorithm,
  findAlgorithm,
  resolveAlgorithm,
} from '../../../packages/distributed/src/algorithms/select.ts'
export {
  builtInTuning,
  type TuningTable,
} from '../../../packages/distributed/src/algorithms/tuning-table.ts'
export {
  algorithmNames,
  fingerprintOf,
  type Operation,
  operationCodes,
} from '../../../packages/distributed/src/operation.ts'
export { reductionsOf } from '../../../packages/distributed/src/reduction.ts'
