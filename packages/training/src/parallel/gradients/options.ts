import {
  argumentError,
  choice,
  declareOptions,
  flag,
  positive,
  type Complete,
  type Rules,
} from '@tsrun/core'
import { describe } from '../../model/describe.ts'
import {
  matchNames,
  namePatterns,
  unmatched,
  type NamePatterns,
} from '../../model/name-patterns.ts'
import { buffersOf } from '../../model/module.ts'
import type { Replicated } from './averaging.ts'

const WIRE_FORMATS = ['float32', 'float16', 'bfloat16'] as const

/** The number format of sent gradients. A 16-bit format sends half as many bytes and loses precision. */
export type WireFormat = (typeof WIRE_FORMATS)[number]

/** Options of `dataParallel`. */
export interface DataParallelOptions {
  /**
   * The largest bucket of gradients in bytes of float32; default 25 MiB. Gradients of a bucket are
   * sent together.
   */
  readonly bucketBytes?: number
  /**
   * The largest first bucket in bytes of float32; default 1 MiB. A small first bucket starts
   * communication early.
   */
  readonly firstBucketBytes?: number
  /**
   * The number format of sent gradients; default float32. With a 16-bit format, gradients are
   * divided by the number of ranks before they are sent.
   */
  readonly wire?: WireFormat
  /**
   * Sums gradients in rank order; default false. Results are then bitwise equal for all bucket
   * sizes, all-reduce algorithms and `fullyShard` stages. With two ranks they always are.
   */
  readonly deterministic?: boolean
  /**
   * `mean` (default): averages the gradients of all ranks, like training in a single process if all
   * ranks have the same number of examples. `token`: sums the gradients of all ranks, and divides
   * by the total number of tokens or examples. Each rank's loss must then be a sum too.
   */
  readonly reduction?: 'mean' | 'token'
  /** Parameters that are not trained and get no gradient: names, patterns of names, or a predicate. */
  readonly frozen?: NamePatterns
  /**
   * The treatment of a parameter that this rank has not used in a step: `error` (default) throws an error,
   * and `zeros` sends a zero gradient. With `zeros`, a parameter that no rank has used gets no gradient.
   */
  readonly unused?: 'error' | 'zeros'
}

const MIB = 1024 * 1024
const bytes = positive('a positive number of bytes')

export const gradientRules = {
  bucketBytes: bytes.default(25 * MIB),
  firstBucketBytes: bytes.default(MIB),
  wire: choice(...WIRE_FORMATS).default('float32'),
  deterministic: flag.default(false),
  reduction: choice('mean', 'token').default('mean'),
  frozen: namePatterns.optional(),
  unused: choice('error', 'zeros').default('error'),
}

/** The options with all defaults filled in. */
export type GradientOptions = Complete<typeof gradientRules>

/** @throws ERR_TSR_ARGUMENT */
export const readDataParallelOptions = declareOptions(
  gradientRules satisfies Rules<DataParallelOptions>,
)

export function wireBytes(wire: WireFormat): number {
  return wire === 'float32' ? 4 : 2
}

/** The parameters of a module, the trained ones among them, and the buffers. Each is listed once. */
export type ModelParameters = ReturnType<typeof checkedParameters>

/**
 * Returns the parameters and buffers of a module that is to be replicated, after checking them and the loss.
 *
 * @throws ERR_TSR_ARGUMENT when `module` is not a module, two parameters have the same name, or `frozen`
 *   matches no parameter; when the loss counts labels and `reduction` is `mean`, because ranks may have
 *   different counts
 */
export function checkedParameters(
  module: Replicated,
  { frozen = [], reduction }: Pick<GradientOptions, 'frozen' | 'reduction'>,
  ranks: number,
) {
  checkModule(module)
  const all = [...new Set(module.parameters)]
  const names = all.map(({ name }) => name)
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  if (twice !== undefined) {
    throw argumentError(
      'module',
      `one with two parameters of the name ${twice}`,
      'a different name for each; a tied parameter is one object, listed several times',
    )
  }
  checkFrozen(frozen, names)
  if (module.countsLabels === true && reduction !== 'token' && ranks > 1) {
    throw argumentError(
      'reduction',
      `mean, for a loss that says what it counts, over ${ranks} ranks`,
      "reduction: 'token', which divides by the count of all ranks",
    )
  }
  const isFrozen = matchNames(frozen)
  const trained = all.filter(({ name }) => !isFrozen(name))
  return { all, trained, buffers: buffersOf(module) }
}

/** @throws ERR_TSR_ARGUMENT when a pattern matches no name */
export function checkFrozen(frozen: NamePatterns, names: readonly string[]): void {
  const [unknown] = unmatched(frozen, names)
  if (unknown === undefined) return
  throw argumentError('frozen', unknown, `names of parameters: ${names.join(', ')}`)
}

function checkModule(module: Replicated): void {
  const { parameters } = (module as Partial<Replicated> | undefined | null) ?? {}
  if (Array.isArray(parameters)) return
  throw argumentError(
    'module',
    describe(module),
    'a module: build() makes one from a recipe; for a model of tf.layers there is DistributedOptimizer ' +
      'of @tsrun/layers',
  )
}
