export { denseNames, ownerOfLayers, type LayerNames } from './checkpoint.ts'
export {
  averageMetrics,
  broadcastWeights,
  DistributedOptimizer,
  type MetricsCallback,
} from './distributed-optimizer.ts'
export type { LayerPlace, LayersModel, LayersVariable } from './model.ts'
export { adaptLayers, type AdaptedLayers } from './module.ts'
export { parallelizeLayers } from './parallelize.ts'
