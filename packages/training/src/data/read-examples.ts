import { importOptional } from '@tsrun/core'
import type { HostDType } from '../tfjs/host-arrays.ts'
import type { Examples } from './examples.ts'

/** A record of a data file, such as a row of CSV or an object of JSONL: values by name. */
export type DataRecord = Readonly<Record<string, unknown>>

/** The source of the values of a field: a key of the records, several keys, or a function. */
export type FieldSource =
  string | readonly string[] | ((record: DataRecord) => number | ArrayLike<number>)

/** The rule for making a field of `examples` from records. */
export type FieldRule =
  | FieldSource
  | {
      readonly from: FieldSource
      /** The dtype of the field; default int32 with `classes`, otherwise float32. */
      readonly dtype?: HostDType
      /** The names of classes. They become 0, 1, 2, ... in this order. */
      readonly classes?: readonly string[]
      /**
       * The shape of the field in one example, if its values are a flat list; default: the shape of
       * the nested lists.
       */
      readonly shape?: readonly number[]
    }

/** The rules by field name. A batch uses the fields `inputs` and `labels`. */
export type FieldRules = Readonly<Record<string, FieldRule>>

/**
 * Calls `readExamples` of `@tsrun/data`, which reads CSV, JSONL and Parquet files. `@tsrun/data` depends on
 * this package, so it is imported by name at run time.
 *
 * @throws ERR_TSR_PACKAGE_MISSING if `@tsrun/data` is not installed; the errors of its `readExamples`
 */
export async function readExamples(path: string, rules: FieldRules): Promise<Examples> {
  const name = '@tsrun/data'
  const load = async () => (await import(name)) as { readExamples: typeof readExamples }
  const data = await importOptional('Reading examples from a file', name, load)
  return await data.readExamples(path, rules)
}
