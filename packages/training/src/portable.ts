// The part of `@tsrun/training` that does not depend on Node.
export { record, recordModule } from './autograd/record.ts'
export { sumInto } from './autograd/sum-gradients.ts'
export type { SegmentedRecording } from './autograd/chain.ts'
export { createTensor, overwrite, tensorFrom, viewOf, writeTo } from './backend/host-memory.ts'
export {
  buffersOf,
  disposeModule,
  parametersOf,
  type Buffered,
  type Module,
} from './model/module.ts'
export type { NamePatterns } from './model/name-patterns.ts'
export * from './model/parameter.ts'
export type {
  Exchange,
  GradientListener,
  GradientMemory,
  GradientPlace,
  LocalSegment,
  Recording,
  RecordOptions,
  Segment,
} from './model/recording.ts'
export { currentPass, inPass, type Pass } from './model/pass.ts'
export { gelu, GELU, ReLU, Sigmoid, silu, SiLU, Tanh, type Activation } from './nn/activations.ts'
export { CausalSelfAttention, type AttentionCore, type AttentionOptions } from './nn/attention.ts'
export {
  AvgPool2d,
  Conv2d,
  Flatten,
  MaxPool2d,
  type Conv2dOptions,
  type PoolOptions,
} from './nn/convolution.ts'
export {
  countTopK,
  crossEntropy,
  crossEntropyWith,
  perplexity,
  summedCrossEntropy,
  type CrossEntropyOptions,
} from './nn/cross-entropy.ts'
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
export * from './nn/layer-norm.ts'
export { Linear, type LinearOptions } from './nn/linear.ts'
export {
  binaryCrossEntropy,
  meanSquaredError,
  summedBinaryCrossEntropy,
  summedMeanSquaredError,
} from './nn/regression-losses.ts'
export {
  countCorrect,
  lossOf,
  recordLoss,
  type Answers,
  type Loss,
  type Reduction,
} from './nn/loss.ts'
export {
  moduleOf,
  Sequential,
  sequential,
  ShardedMLP,
  shardedMLP,
  type LayerFactory,
  type ShardedMLPOptions,
} from './nn/sequential.ts'
export { Block, FeedForward, type FeedForwardOptions } from './nn/transformer-block.ts'
export * from './optim/index.ts'
export * from './parallel/context/index.ts'
export * from './parallel/data/index.ts'
export * from './parallel/pipeline/index.ts'
export * from './parallel/tensor-functions.ts'
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
