import { tsrError } from '@tsrun/core'
import type { Parameter } from '../../nn/parameter.ts'
import type { Averaging } from './averaging.ts'
import type { BucketSizes } from './buckets.ts'
import type { WireFormat } from './wire.ts'

const MIB = 1024 * 1024

export interface DataParallelOptions {
  /** Bytes of float32 gradients that travel together; default 25 MiB. */
  readonly bucketBytes?: number
  /** The same of the first bucket, which the others wait for; default 1 MiB. */
  readonly firstBucketBytes?: number
  /** The form in which gradients travel; default float32. */
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
  /** Names of parameters that are not trained; they get no gradient. */
  readonly frozen?: readonly string[]
  /** What becomes of parameters that a step has not used: an error (default), or gradients of zero. */
  readonly unused?: 'error' | 'zeros'
}

/** What is replicated: a module, or a rank's part of a pipeline. */
export interface Replicated {
  readonly parameters: readonly Parameter[]
  /** Where it makes steps of its own: they go through `averaging` from now on, or through none. */
  averageBy?(averaging: Averaging | undefined): void
}

/** The parameters that get gradients, a tied one once. @throws ERR_TSR_ARGUMENT */
export function trainedParameters(
  { parameters }: Replicated,
  { frozen = [] }: DataParallelOptions,
): Parameter[] {
  const names = new Set(parameters.map(({ name }) => name))
  const unknown = frozen.find((name) => !names.has(name))
  if (unknown !== undefined) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'frozen',
      value: unknown,
      expected: `names of parameters: ${[...names].join(', ')}`,
    })
  }
  return [...new Set(parameters)].filter(({ name }) => !frozen.includes(name))
}

/** @throws ERR_TSR_ARGUMENT */
export function checkSizes({
  bucketBytes = 25 * MIB,
  firstBucketBytes = MIB,
}: DataParallelOptions): BucketSizes {
  for (const [name, value] of Object.entries({ bucketBytes, firstBucketBytes })) {
    if (!(value > 0)) {
      throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a positive number of bytes' })
    }
  }
  return { bytes: bucketBytes, firstBytes: firstBucketBytes }
}
