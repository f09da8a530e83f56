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
export {
  imageFolder,
  readImage,
  type ImageFolder,
  type ImageFolderOptions,
} from './image-folder.ts'
export { mnist, type MnistOptions } from './mnist.ts'
export { mobyDick, type MobyDickOptions } from './moby-dick.ts'
export { prefetch } from './prefetch.ts'
export { csvRecords, jsonlRecords, parquetRecords, readExamples } from './record-files.ts'
export {
  examplesFrom,
  type DataRecord,
  type FieldRule,
  type FieldRules,
  type FieldSource,
} from './records.ts'
export { sampler, type Sampler, type SamplerOptions } from './sampler.ts'
export { randomSplit, subset, type RandomSplitOptions } from './split.ts'
export { streamLoader, type StreamLoader, type StreamOptions, type StreamState } from './stream.ts'
export {
  textBatch,
  textBatches,
  type ByteText,
  type Text,
  type TextBatch,
  type TextOptions,
} from './text.ts'
