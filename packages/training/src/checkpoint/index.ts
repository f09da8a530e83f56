export { latestCheckpoint, type LatestCheckpoint } from './latest.ts'
export { loadCheckpoint, type LoadedCheckpoint, type LoadOptions } from './load.ts'
export type { UnusableCheckpoint } from './folders.ts'
export { ownerOfOptimizer, ownerOfParameters, type StatefulOptimizer } from './owners.ts'
export {
  denseNames,
  ownerOfLayers,
  type LayerNames,
  type LayerPlace,
  type LayersModelLike,
} from './layers.ts'
export {
  ownerOfTrainOptimizer,
  type TrainOptimizerLike,
  type TrainedLayersModel,
} from './train-optimizer.ts'
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
  gpt2Names,
  loadPretrained,
  type GPT2NamesOptions,
  type NameMapping,
  type PretrainedReport,
  type PretrainedSource,
} from './pretrained.ts'
export { saveCheckpoint, type SavedCheckpoint, type SaveOptions } from './save.ts'
export type { SavedState } from './saved-state.ts'
export type { CheckpointState } from './state.ts'
export { openSafetensors, type SafetensorsFile } from './safetensors/read.ts'
export { writeSafetensors, type TensorData, type WrittenFile } from './safetensors/write.ts'
export type { SafetensorsDType, TensorValues } from './safetensors/dtypes.ts'
export type { SafetensorsEntry } from './safetensors/header.ts'
