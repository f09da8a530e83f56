import { argumentError, count, declareOptions, shown, type Rules } from '@tsrun/core'
import type { Dataset } from './dataset.ts'
import { isExamples, type Examples, type Field } from './examples.ts'
import type { ImageFolder } from './image-folder.ts'
import { orderRules, permutation } from './order.ts'

/**
 * Returns the examples of a data set at `indices`, in that order, without copying them.
 *
 * @example
 * const few = subset(mnist({ split: 'train' }), [0, 1, 2])
 *
 * @throws ERR_TSR_ARGUMENT for an index that the data set does not have
 */
export function subset<D extends Dataset | Examples>(data: D, indices: ArrayLike<number>): D {
  const rule = count({ to: data.size - 1 })
  const chosen = Int32Array.from(indices, (index) => rule.check('an index of the subset', index))
  const place = (rows: Int32Array) => rows.map((row) => chosen[row]!)
  const paths = (data as Partial<ImageFolder>).paths
  return {
    ...data,
    size: chosen.length,
    ...readers(data, place),
    ...(paths !== undefined && { paths: Array.from(chosen, (index) => paths[index]!) }),
  }
}

function readers(
  data: Dataset | Examples,
  place: (rows: Int32Array) => Int32Array,
): Partial<Dataset> | Partial<Examples> {
  if (!isExamples(data)) {
    const { features, classes } = data
    return {
      // Copy these properties by name: `...data` does not copy the getters of a class.
      features,
      classes,
      readInputs: (rows, out) => {
        data.readInputs(place(rows), out)
      },
      readLabels: (rows, out) => {
        data.readLabels(place(rows), out)
      },
    }
  }
  const fields = Object.entries(data.fields).map(([name, field]): [string, Field] => {
    const read: Field['read'] = (rows, out) => {
      field.read(place(rows), out)
    }
    return [name, { ...field, read }]
  })
  return { fields: Object.fromEntries(fields) }
}

/** Options of `randomSplit`. */
export interface RandomSplitOptions {
  /** The seed; default 0. The same seed gives the same parts on all ranks and in each run. */
  readonly seed?: number
}

const readOptions = declareOptions({ seed: orderRules.seed } satisfies Rules<RandomSplitOptions>)

/**
 * Splits the examples of a data set at random, for example into training and evaluation data.
 * Examples are not copied. Every example is in at most one part.
 *
 * @param fractions - the fraction of the examples in each part; their sum is at most 1
 *
 * @example
 * const [train, test] = randomSplit(await imageFolder('photos', { size: [64, 64] }), [0.8, 0.2])
 * await run.fit(train, { batch: 32, evaluate: { data: test } })
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function randomSplit<D extends Dataset | Examples, const F extends readonly number[]>(
  data: D,
  fractions: F,
  options: RandomSplitOptions = {},
): { -readonly [K in keyof F]: D } {
  const { seed } = readOptions(options)
  let sum = 0
  const ends = fractions.map((fraction) => Math.round((sum += fraction) * data.size))
  if (sum > 1 + 1e-9 || !fractions.every((fraction) => fraction >= 0)) {
    throw argumentError(
      'fractions',
      shown(fractions),
      'fractions of the examples, in all at most 1',
    )
  }
  const order = permutation(data.size, 'split', seed)
  return ends.map((end, part) =>
    subset(data, order.subarray(part === 0 ? 0 : ends[part - 1], end)),
  ) as {
    -readonly [K in keyof F]: D
  }
}
