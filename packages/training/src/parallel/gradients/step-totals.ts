import { tsrError } from '@tsrun/core'
import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import { timeWait } from '@tsrun/distributed/record'
import type { OwnTotals, StepTotals } from './averaging.ts'
import type { GradientExchange } from './exchange.ts'
import type { GradientOptions } from './options.ts'
import { freeAfterRun } from '../group-buffers.ts'

/** The number of ranks of all axes together. */
export function countRanks(axes: readonly ProcessGroup[]): number {
  return axes.reduce((product, { size }) => product * size, 1)
}

/**
 * Sums the totals of each step over all axes: one prepared collective per axis, or none if no totals are
 * needed.
 */
export class TotalsSum {
  readonly #axes: readonly ProcessGroup[]
  /** `Figures`, then a mark for each parameter that was used. */
  readonly #totals: Float64Array | undefined
  readonly #sums: readonly PersistentOperation[]

  /** @param parameters - the number of trained parameters */
  constructor(axes: readonly ProcessGroup[], options: GradientOptions, parameters: number) {
    this.#axes = axes
    const marks = options.unused === 'error' ? 0 : parameters
    const isNeeded = options.reduction === 'token' || marks > 0
    const totals = isNeeded ? axes[0]!.alloc('float64', MARKS + marks) : undefined
    this.#totals = totals
    const label = 'loss, counts, used parameters'
    this.#sums = totals ? axes.map((axis) => axis.allReduceInit(totals, { label })) : []
  }

  /**
   * @param abandoned - the number of failed steps of this rank
   * @returns undefined if the options need no totals
   * @throws ERR_TSR_REPLICA_ENDED on all ranks when a step has failed on some ranks only, as later steps
   *   would no longer match between ranks
   */
  async sum(
    { used, names }: Pick<GradientExchange, 'used' | 'names'>,
    own: OwnTotals,
    abandoned: number,
  ): Promise<StepTotals | undefined> {
    const totals = this.#totals
    if (totals === undefined) return undefined
    const [group] = this.#axes
    const [asMean, asSum] = [Number(own.found === 'mean'), Number(own.found === 'sum')]
    totals.set([own.loss, own.count, own.examples, abandoned, asMean, asSum])
    if (totals.length > MARKS) totals.set(used.map(Number), MARKS)
    await timeWait(group!.spans, { name: 'totals' }, async () => {
      for (const sum of this.#sums) {
        sum.start()
        await sum.done()
      }
    })
    const [loss, count, examples, failed, means, sums] = totals as unknown as Figures
    if (failed !== abandoned * countRanks(this.#axes)) {
      const rank = group!.ranks[group!.rank]!
      const reason = 'a step has failed on some ranks only'
      throw tsrError('ERR_TSR_REPLICA_ENDED', { rank, reason })
    }
    if (means > 0 && sums > 0) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'loss',
        value: `a mean on ${means} ranks, and a sum on ${sums}`,
        expected: "loss.reduction = 'mean' or 'sum', which says what it is",
      })
    }
    const found = means > 0 ? 'mean' : sums > 0 ? 'sum' : undefined
    const missing = names.filter((_, i) => totals[MARKS + i] === 0)
    return { loss, count, examples, found, unused: new Set(missing) }
  }

  /** Frees the memory once no sum is in progress. */
  dispose(): void {
    const totals = this.#totals
    let left = this.#sums.length
    for (const sum of this.#sums) {
      freeAfterRun(sum, () => {
        if (--left === 0) this.#axes[0]!.free(totals!)
      })
    }
  }
}

type Figures = [
  loss: number,
  count: number,
  examples: number,
  failed: number,
  means: number,
  sums: number,
]

/** The index of the first mark. */
const MARKS = 6

/**
 * @throws ERR_TSR_UNUSED_PARAMETERS unless this rank has used all parameters, or `unused` is not `error`
 */
export function checkUsed(
  { unused }: GradientOptions,
  { used, names }: Pick<GradientExchange, 'used' | 'names'>,
  { rank, ranks }: Pick<ProcessGroup, 'rank' | 'ranks'>,
): void {
  if (unused !== 'error' || used.every(Boolean)) return
  const parameters = names.filter((_, i) => used[i] === false).join(', ')
  throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: ranks[rank]!, parameters })
}

/** The factor that turns an average over the ranks into an average over `count`. */
export function factorOf(axes: readonly ProcessGroup[], count: number): number {
  // without examples the gradients are zero
  return count === 0 ? 0 : countRanks(axes) / count
}

/**
 * The power of two nearest to a factor. Scaling a loss by it and dividing the gradient by it afterwards
 * is exact. If the factor is a power of two, as with most batch sizes, no pass over the gradients is
 * needed to multiply them.
 */
export function powerOfTwoNear(factor: number): number {
  return 2 ** Math.round(Math.log2(factor))
}
