export { recordChain } from '../../packages/training/src/autograd/chain.ts'
export { recordOnTape } from '../../packages/training/src/autograd/record.ts'
export { testTape } from '../../packages/training/src/autograd/self-test.ts'
export {
  fused,
  type GraphNode,
  type Value,
} from '../../packages/training/src/backend/tensorflow/graph.ts'
export { adapterNames, chooseAdapter } from '../../packages/training/src/backend/webgpu/device.ts'
export { decodeContents, encodeContents } from '../../packages/training/src/checkpoint/contents.ts'
export { copyCommon } from '../../packages/training/src/checkpoint/piece.ts'
export { inWriter, startWriter } from '../../packages/training/src/checkpoint/writer.ts'
export { parseHeader } from '../../packages/training/src/checkpoint/safetensors/header.ts'
export { planBuckets } from '../../packages/training/src/parallel/gradients/buckets.ts'
export { preparedMessages } from '../../packages/training/src/parallel/pipeline/activations.ts'
export { xoshiro128 } from '../../packages/training/src/random/generator.ts'
