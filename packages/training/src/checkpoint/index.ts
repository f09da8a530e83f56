export { latestCheckpoint, type LatestCheckpoint, type UnusableCheckpoint } from './folders.ts'
export * from './load.ts'
export {
  ownerOfOptimizer,
  ownerOfParameters,
  type CheckpointState,
  type StatefulOptimizer,
} from './owners.ts'
export {
  partOfParameter,
  partSize,
  stateName,
  type Box,
  type Part,
  type Piece,
  type PieceOwner,
  type PieceValues,
} from './piece.ts'
export {
  loadPretrained,
  type NameMapping,
  type PretrainedReport,
  type PretrainedSource,
} from './pretrained.ts'
export { saveCheckpoint, type SavedCheckpoint, type SavedState, type SaveOptions } from './save.ts'
export {
  openSafetensors,
  type SafetensorsEntry,
  type SafetensorsFile,
} from './safetensors/format.ts'
export { writeSafetensors, type TensorData } from './write-safetensors.ts'
export type { SafetensorsDType, TensorValues } from './safetensors/dtypes.ts'
