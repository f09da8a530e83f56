export { fused } from '../../packages/tensorflow/src/fused.ts'
export type { GraphNode, Value } from '../../packages/tensorflow/src/graph.ts'
