import { refuseUnknown, shown, tsrError } from '@tsrun/core'
import { checkChoice, checkFlag, describe } from '../../arguments.ts'
import { matchName, matchNames, type NamePatterns } from '../../model/name-patterns.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Averaging } from './averaging.ts'
import type { BucketSizes } from './buckets.ts'
import { wireFormats, type WireFormat } from './wire.ts'

const MIB = 1024 * 1024

export interface DataParallelOptions {
  /** Bytes of float32 gradients that travel together; default 25 MiB. */
  readonly bucketBytes?: number
  /** The same of the first bucket, which the others wait for; default 1 MiB. */
  readonly firstBucketBytes?: number
  /** The form in which gradients travel, averaged already; default float32. */
  readonly wire?: WireFormat
  /**
   * Sums gradients in the order of the ranks, so that they are the same bits whatever buckets,
   * algorithms or stages of `fullyShard` there are; default false. Two ranks have no other order.
   */
  readonly deterministic?: boolean
  /**
   * `mean` (default): the mean of the ranks' gradients, that of a single process where all ranks have
   * as many examples. `token`: the sum over all ranks, divided by the number of tokens (or examples)
   * of all; the loss of each rank is then a sum too.
   */
  readonly reduction?: 'mean' | 'token'
  /** Parameters that are not trained, which get no gradient: names or patterns, or a predicate. */
  readonly frozen?: NamePatterns
  /**
   * What becomes of parameters that a step has not used on this rank: an error (default), or a
   * gradient of zero. One that no rank has used gets no gradient then.
   */
  readonly unused?: 'error' | 'zeros'
}

/** Options that are known to be right. */
export interface GradientOptions {
  readonly sizes: BucketSizes
  readonly wire: WireFormat
  readonly deterministic: boolean
  readonly reduction: 'mean' | 'token'
  readonly unused: 'error' | 'zeros'
}

/** What is replicated: a module, or a rank's part of a pipeline. */
export interface Replicated {
  readonly parameters: readonly Parameter[]
  /** Where it makes steps of its own: they go through `averaging` from now on, or through none. */
  averageBy?(averaging: Averaging | undefined): void
}

const KNOWN = Object.keys({
  bucketBytes: true,
  firstBucketBytes: true,
  wire: true,
  deterministic: true,
  reduction: true,
  frozen: true,
  unused: true,
} satisfies Record<keyof DataParallelOptions, true>)

/** @param more - names of other options that there are @throws ERR_TSR_ARGUMENT */
export function checkOptions(
  options: DataParallelOptions,
  more: readonly string[] = [],
): GradientOptions {
  refuseUnknown(options, [...KNOWN, ...more])
  const {
    bucketBytes = 25 * MIB,
    firstBucketBytes = MIB,
    wire = 'float32',
    deterministic = false,
    reduction = 'mean',
    unused = 'error',
  } = options
  for (const [name, value] of Object.entries({ bucketBytes, firstBucketBytes })) {
    if (!(value > 0)) {
      throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a positive number of bytes' })
    }
  }
  checkChoice('wire', wire, wireFormats)
  checkChoice('reduction', reduction, ['mean', 'token'])
  checkChoice('unused', unused, ['error', 'zeros'])
  checkFlag('deterministic', deterministic)
  const sizes = { bytes: bucketBytes, firstBytes: firstBucketBytes }
  return { sizes, wire, deterministic, reduction, unused }
}

/**
 * All parameters, a tied one once.
 *
 * @throws ERR_TSR_ARGUMENT when two have the same name, or it is no module
 */
export function distinctParameters(module: Replicated): Parameter[] {
  checkModule(module)
  const distinct = [...new Set(module.parameters)]
  const names = new Set<string>()
  for (const { name } of distinct) {
    if (names.has(name)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'module',
        value: `one with two parameters of the name ${name}`,
        expected: 'a name of its own for each; what is tied is one parameter, several times',
      })
    }
    names.add(name)
  }
  return distinct
}

function checkModule(module: Replicated): void {
  const { parameters } = (module as Partial<Replicated> | undefined | null) ?? {}
  if (Array.isArray(parameters)) return
  const value = describe(module)
  const advice = {
    'a recipe': 'a module: build() makes one of a recipe, or a pipeline',
    'a model of tf.layers': 'a module; for a model of tf.layers there is DistributedOptimizer',
  }[value]
  const expected = advice ?? 'a module, which has parameters'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'module', value, expected })
}

/** Those of `parameters` that get gradients. @throws ERR_TSR_ARGUMENT */
export function trainedParameters(
  parameters: readonly Parameter[],
  { frozen = [] }: DataParallelOptions,
): Parameter[] {
  const patterns = patternsOf(frozen)
  const names = parameters.map(({ name }) => name)
  const unknown = patterns.find((pattern) => !names.some(matchName(pattern)))
  if (unknown !== undefined) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'frozen',
      value: unknown,
      expected: `names of parameters: ${names.join(', ')}`,
    })
  }
  const isFrozen = matchNames(frozen)
  return parameters.filter(({ name }) => !isFrozen(name))
}

/**
 * That there is something to train; a rank's part of a pipeline may have nothing.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function checkTrained(module: Replicated, trained: readonly Parameter[]): void {
  if (trained.length > 0 || 'averageBy' in module) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'module',
    value: 'one without a parameter that is trained',
    expected: 'one with one or more',
  })
}

function patternsOf(patterns: unknown): string[] {
  if (typeof patterns === 'function') return []
  const list: unknown[] = Array.isArray(patterns) ? patterns : [patterns]
  const odd = list.find((pattern) => typeof pattern !== 'string')
  if (odd === undefined) return list as string[]
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'frozen',
    value: shown(odd),
    expected: 'names or patterns of names, or a function of a name',
  })
}

/** @throws ERR_TSR_ARGUMENT unless there are tokens where they are asked for, and a number of them */
export function checkTokens({ reduction }: GradientOptions, tokens: number | undefined): void {
  const isRight =
    reduction === 'token' ? Number.isFinite(tokens) && tokens! >= 0 : tokens === undefined
  if (isRight) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'tokens',
    value: shown(tokens),
    expected: "a number >= 0 with reduction: 'token', and only there",
  })
}
