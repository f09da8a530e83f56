export { record, recordModule } from './autograd/record.ts'
export type { GradientListener, Recording, RecordOptions } from './autograd/recording.ts'
export type { Backend, BackendName } from './backend/backend.ts'
export type { HostArray, HostArrays, HostDType } from './backend/bridge/bridge.ts'
export {
  copyCounts,
  type Copies,
  type CopyCounts,
  type CopyDirection,
} from './backend/bridge/copies.ts'
export { createTensor, tensorFrom, viewOf, writeTo } from './backend/host-memory.ts'
export { loadBackend } from './backend/load.ts'
export { tf, type Tensor } from './backend/tensorflow.ts'
export { batches, type Batches, type BatchesOptions, type ExampleBatch } from './data/batches.ts'
export type { Dataset } from './data/dataset.ts'
export { mnist, type MnistOptions } from './data/mnist.ts'
export { countCorrect } from './nn/accuracy.ts'
export { crossEntropy, summedCrossEntropy, type Reduction } from './nn/cross-entropy.ts'
export { Linear, type LinearOptions } from './nn/linear.ts'
export { recordLoss, type Loss } from './nn/loss.ts'
export { disposeModule, type Module } from './nn/module.ts'
export { replaceValue, type Parameter } from './nn/parameter.ts'
export { ShardedMLP, shardedMLP, type ShardedMLPOptions } from './nn/sharded-mlp.ts'
export { Adam, type AdamOptions } from './optim/adam.ts'
export { sumInto } from './optim/gradients.ts'
export type { Optimizer } from './optim/optimizer.ts'
export { SGD, type SGDOptions } from './optim/sgd.ts'
export * from './parallel/index.ts'
export { generator, uniform, type Generator } from './random/generator.ts'
