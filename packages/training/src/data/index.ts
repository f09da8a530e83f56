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
export type { Dataset } from './dataset.ts'
export { examples, type Column, type Examples, type Field } from './examples.ts'
export * from './image-folder.ts'
export * from './mnist.ts'
export {
  randomSplit,
  sampler,
  subset,
  type RandomSplitOptions,
  type Sampler,
  type SamplerOptions,
} from './order.ts'
export { csvRecords, jsonlRecords, parquetRecords, readExamples } from './record-files.ts'
export {
  examplesFrom,
  type DataRecord,
  type FieldRule,
  type FieldRules,
  type FieldSource,
} from './records.ts'
export * from './stream.ts'
export * from './text.ts'
