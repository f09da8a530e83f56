import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { timeWait } from '@tsrun/distributed/record'
import type { OwnTotals, StepTotals } from './averaging.ts'
import type { GradientExchange } from './exchange.ts'
import type { GradientOptions } from './options.ts'
import { freeAfterRun } from '../group-buffers.ts'

/** Returns the number of ranks of all axes together. */
export function countRanks(axes: readonly ProcessGroup[]): number {
  return axes.reduce((product, { size }) => product * size, 1)
}

export type TotalsSum = ReturnType<typeof totalsSum>

/**
 * Sums the totals of each step over all ranks. Uses one prepared all-reduce per axis, or none if
 * the options need no totals.
 *
 * @param parameters - the number of trained parameters
 */
export function totalsSum(
  axes: readonly ProcessGroup[],
  options: GradientOptions,
  parameters: number,
) {
  const group = axes[0]!
  const marks = options.unused === 'error' ? 0 : parameters
  const isNeeded = options.reduction === 'token' || marks > 0
  /** The totals, then one flag per parameter: whether it was used. */
  const totals = isNeeded ? new Float64Array(MARKS + marks) : undefined
  const label = 'loss, counts, used parameters'
  const sums = totals ? axes.map((axis) => axis.allReduceInit(totals, { label })) : []
  return {
    /**
     * Sums the totals of this step over all ranks.
     *
     * @param abandoned - the number of steps that failed on this rank
     * @returns undefined if the options need no totals
     * @throws ERR_TSR_REPLICA_ENDED on all ranks when a step failed on some ranks only, because later
     *   steps would not match between ranks
     */
    async sum(
      { used, names }: GradientExchange,
      own: OwnTotals,
      abandoned: number,
    ): Promise<StepTotals | undefined> {
      if (totals === undefined) return undefined
      const [asMean, asSum] = [Number(own.found === 'mean'), Number(own.found === 'sum')]
      totals.set([own.loss, own.count, own.examples, abandoned, asMean, asSum])
      if (totals.length > MARKS) totals.set(used().map(Number), MARKS)
      await timeWait(group.spans, { name: 'totals' }, async () => {
        for (const sum of sums) {
          sum.start()
          await sum.done()
        }
      })
      const [loss = 0, count = 0, examples = 0, failed = 0, onMean = 0, onSum = 0] = totals
      if (failed !== abandoned * countRanks(axes)) {
        const rank = group.ranks[group.rank]!
        const reason = 'a step has failed on some ranks only'
        throw tsrError('ERR_TSR_REPLICA_ENDED', { rank, reason })
      }
      if (onMean > 0 && onSum > 0) {
        throw argumentError(
          'loss',
          `a mean on ${onMean} ranks, and a sum on ${onSum}`,
          "loss.reduction = 'mean' or 'sum', which says what it is",
        )
      }
      const found = onMean > 0 ? 'mean' : onSum > 0 ? 'sum' : undefined
      const missing = names().filter((_, i) => totals[MARKS + i] === 0)
      return { loss, count, examples, found, unused: new Set(missing) }
    },

    dispose() {
      for (const sum of sums) freeAfterRun(sum)
    },
  }
}

/** The number of totals before the flags of parameters. */
const MARKS = 6

/**
 * Checks that this rank has used all parameters, if the option `unused` is `error`.
 *
 * @throws ERR_TSR_UNUSED_PARAMETERS
 */
export function checkUsed(
  { unused }: GradientOptions,
  { used, names }: GradientExchange,
  { rank, ranks }: ProcessGroup,
): void {
  const areUsed = used()
  if (unused !== 'error' || areUsed.every(Boolean)) return
  const parameters = names()
    .filter((_, i) => areUsed[i] === false)
    .join(', ')
  throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: ranks[rank]!, parameters })
}

/** Returns the factor that converts a mean over ranks into a mean over `count` examples or labels. */
export function factorOf(axes: readonly ProcessGroup[], count: number): number {
  // Without examples all gradients are zero.
  return count === 0 ? 0 : countRanks(axes) / count
}

/**
 * Returns the power of two nearest to a factor. Multiplying the loss by a power of two and later
 * dividing the gradient by it is exact. If the factor itself is a power of two, as with most batch
 * sizes, the gradients need no extra pass to be scaled.
 */
export function powerOfTwoNear(factor: number): number {
  return 2 ** Math.round(Math.log2(factor))
}
