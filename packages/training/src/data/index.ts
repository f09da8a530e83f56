export {
  batches,
  dataLoader,
  type Batches,
  type BatchesOptions,
  type ExampleBatch,
  type Loader,
  type LoaderOptions,
  type LoaderState,
} from './batches.ts'
export { examples, type Column, type Examples, type Field } from './examples.ts'
export * from './mnist.ts'
export { randomSplit, sampler, subset, type Sampler, type SamplerOptions } from './order.ts'
export * from './read-examples.ts'
export * from './text.ts'
