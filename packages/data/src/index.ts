export * from './image-folder.ts'
export { csvRecords, jsonlRecords, parquetRecords, readExamples } from './record-files.ts'
export {
  examplesFrom,
  type DataRecord,
  type FieldRule,
  type FieldRules,
  type FieldSource,
} from './records.ts'
export * from './stream.ts'
