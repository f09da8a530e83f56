export {
  denseNames,
  ownerOfLayers,
  ownerOfTrainOptimizer,
  type LayerNames,
  type TrainOptimizerLike,
} from './checkpoint.ts'
export { DistributedOptimizer } from './distributed-optimizer.ts'
export { averageMetrics, broadcastWeights, type MetricsCallback } from './fit.ts'
export type { LayerPlace, LayersModel, LayersVariable } from './model.ts'
export { adaptLayers, type AdaptedLayers } from './module.ts'
export { parallelizeLayers } from './parallelize.ts'
