// The part of `@tsrun/training` that needs nothing of Node.
export { record, recordModule } from './autograd/record.ts'
export { sumInto } from './autograd/sum-gradients.ts'
export type { SegmentedRecording } from './autograd/chain.ts'
export { createTensor, tensorFrom, viewOf, writeTo } from './backend/host-memory.ts'
export {
  buffersOf,
  disposeModule,
  parametersOf,
  type Buffered,
  type Module,
} from './model/module.ts'
export type { NamePatterns } from './model/name-patterns.ts'
export { replaceValue, type Parameter, type Shard } from './model/parameter.ts'
export type {
  GradientListener,
  GradientMemory,
  GradientPlace,
  Recording,
  RecordOptions,
} from './model/recording.ts'
export type { Exchange, LocalSegment, Segment } from './model/segment.ts'
export { currentPass, inPass, type Pass } from './model/pass.ts'
export { gelu, GELU, ReLU, Sigmoid, silu, SiLU, Tanh, type Activation } from './nn/activations.ts'
export { CausalSelfAttention, type AttentionOptions } from './nn/attention.ts'
export type { AttentionCore } from './nn/causal-attention.ts'
export { Conv2d, type Conv2dOptions } from './nn/convolution.ts'
export { crossEntropy, summedCrossEntropy, type Reduction } from './nn/cross-entropy.ts'
export { Dropout, type DropoutOptions } from './nn/dropout.ts'
export {
  Embedding,
  PositionEmbedding,
  type EmbeddingOptions,
  type Positions,
} from './nn/embedding.ts'
/** Initial values of parameters. */
export * as init from './nn/init.ts'
export { createParameter } from './nn/initialize.ts'
export { LayerNorm, RMSNorm, type NormOptions } from './nn/layer-norm.ts'
export { Linear, type LinearOptions } from './nn/linear.ts'
export {
  binaryCrossEntropy,
  meanSquaredError,
  summedBinaryCrossEntropy,
  summedMeanSquaredError,
} from './nn/regression-losses.ts'
export {
  countTopK,
  crossEntropyWith,
  perplexity,
  type CrossEntropyOptions,
} from './nn/soft-cross-entropy.ts'
export { countCorrect, lossOf, recordLoss, type Answers, type Loss } from './nn/loss.ts'
export { AvgPool2d, Flatten, MaxPool2d, type PoolOptions } from './nn/pooling.ts'
export { moduleOf, Sequential, sequential, type LayerFactory } from './nn/sequential.ts'
export { ShardedMLP, shardedMLP, type ShardedMLPOptions } from './nn/sharded-mlp.ts'
export { Block, FeedForward, type FeedForwardOptions } from './nn/transformer-block.ts'
export * from './optim/index.ts'
export * from './parallel/context/index.ts'
export * from './parallel/data/index.ts'
export * from './parallel/pipeline/analysis/index.ts'
export * from './parallel/pipeline/index.ts'
export {
  allGatherTensor,
  allReduceTensor,
  allToAllTensor,
  broadcastTensor,
  gatherTensor,
  recvTensor,
  reduceScatterTensor,
  reduceTensor,
  scatterTensor,
  sendTensor,
  type PartOptions,
  type ReceiveOptions,
  type ScatterOptions,
} from './parallel/tensor-functions.ts'
export * from './parallel/tensor/index.ts'
export { generator, uniform, type Generator } from './random/generator.ts'
export type { Backend, BackendFacts, BackendName, BackendOptions } from './tfjs/backend.ts'
export {
  copyCounts,
  type Copies,
  type CopyCounts,
  type CopyDirection,
  type HostArray,
  type HostArrays,
  type HostDType,
} from './tfjs/host-arrays.ts'
export { tf, type Tensor } from './tfjs/tfjs.ts'
