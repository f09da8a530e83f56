export { record, recordModule } from './autograd/record.ts'
export type { GradientListener, Recording, RecordOptions } from './model/recording.ts'
export type { Exchange, LocalSegment, Segment } from './model/segment.ts'
export type { SegmentedRecording } from './autograd/segmented-recording.ts'
export { createTensor, overwrite, tensorFrom, viewOf, writeTo } from './backend/host-memory.ts'
export { loadBackend } from './backend/load.ts'
export * from './checkpoint/index.ts'
export * from './data/index.ts'
export { countCorrect } from './nn/accuracy.ts'
export { CausalSelfAttention, type AttentionOptions } from './nn/attention.ts'
export { Block } from './nn/block.ts'
export type { AttentionCore } from './nn/causal-attention.ts'
export { crossEntropy, summedCrossEntropy, type Reduction } from './nn/cross-entropy.ts'
export { Embedding, type EmbeddingOptions } from './nn/embedding.ts'
export { gelu } from './nn/gelu.ts'
export { GPT, gpt, type GPTOptions } from './nn/gpt.ts'
export { LayerNorm, RMSNorm, type NormOptions } from './nn/layer-norm.ts'
export { Linear, type LinearOptions } from './nn/linear.ts'
export { recordLoss, type Loss } from './nn/loss.ts'
export { FeedForward, type FeedForwardOptions } from './nn/mlp.ts'
export { disposeModule, type Module } from './model/module.ts'
export type { NamePatterns } from './model/name-patterns.ts'
export { PositionEmbedding, type Positions } from './nn/positions.ts'
export { replaceValue, type Parameter, type Shard } from './model/parameter.ts'
export { ShardedMLP, shardedMLP, type ShardedMLPOptions } from './nn/sharded-mlp.ts'
export * from './optim/index.ts'
export * from './parallel/index.ts'
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
