export { fused, type GraphNode, type Value } from '../../packages/tensorflow/src/graph.ts'
