import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { timeWait } from '@tsrun/telemetry'
import type { GradientExchange } from './exchange.ts'
import type { GradientOptions } from './options.ts'

/** What all ranks have together in a step, beside the gradients. */
export interface StepTotals {
  /** What gradients are averaged over: the number of ranks, or of tokens. */
  readonly count: number
  /** The sum of the losses of all ranks, with `reduction: 'token'`. */
  readonly loss: number
  /** Names of parameters that no rank has used. */
  readonly unused: ReadonlySet<string>
}

/** What a rank adds to the totals. */
export interface OwnTotals {
  readonly tokens?: number | undefined
  readonly loss?: number | undefined
  /** The number of its steps that have failed. */
  readonly abandoned: number
}

/** The number of ranks of all axes together. */
export function countRanks(axes: readonly ProcessGroup[]): number {
  return axes.reduce((product, { size }) => product * size, 1)
}

/**
 * Sums over all axes with one collective per axis, or with none if the options do not need it.
 *
 * @throws ERR_TSR_REPLICA_ENDED on all ranks when a step has failed on some of them only, whose batches
 *   would meet other ones from now on; ERR_TSR_UNUSED_PARAMETERS
 */
export async function sumStep(
  axes: readonly ProcessGroup[],
  { reduction, unused }: GradientOptions,
  { used, names }: Pick<GradientExchange, 'used' | 'names'>,
  { tokens = 0, loss = 0, abandoned }: OwnTotals,
): Promise<StepTotals> {
  const ranks = countRanks(axes)
  const marks = unused === 'error' ? [] : used.map(Number)
  if (reduction === 'mean' && marks.length === 0) return { count: ranks, loss, unused: new Set() }
  const [group] = axes
  const totals = group!.alloc('float64', 3 + marks.length)
  try {
    totals.set([tokens, loss, abandoned, ...marks])
    await timeWait(group!.spans, { name: 'totals' }, async () => {
      for (const axis of axes)
        await axis.allReduce(totals, { label: 'tokens, loss, used parameters' })
    })
    const rank = group!.ranks[group!.rank]!
    if (totals[2] !== abandoned * ranks) {
      const reason = 'a step has failed on some ranks only'
      throw tsrError('ERR_TSR_REPLICA_ENDED', { rank, reason })
    }
    const count = reduction === 'token' ? totals[0]! : ranks
    const missing = names.filter((_, i) => totals[i + 3] === 0)
    if (unused === 'elsewhere' && missing.length > 0 && count > 0) {
      const parameters = missing.join(', ')
      throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank, parameters })
    }
    return { count, loss: totals[1]!, unused: new Set(missing) }
  } finally {
    group!.free(totals)
  }
}

/** @throws ERR_TSR_UNUSED_PARAMETERS unless this rank has used all parameters, or need not */
export function checkUsed(
  { unused }: GradientOptions,
  { used, names }: Pick<GradientExchange, 'used' | 'names'>,
  { rank, ranks }: Pick<ProcessGroup, 'rank' | 'ranks'>,
): void {
  if (unused !== 'error' || used.every(Boolean)) return
  const parameters = names.filter((_, i) => used[i] === false).join(', ')
  throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: ranks[rank]!, parameters })
}

/** The factor that turns an average over the ranks into one over `count`. */
export function factorOf(axes: readonly ProcessGroup[], count: number): number {
  // without any example there is no gradient
  return count === 0 ? 0 : countRanks(axes) / count
}

/**
 * The power of two next to a factor. A loss that is scaled by it, and a gradient that is divided by it
 * afterwards, have the bits of one that is not. Where the factor is a power of two, as with most sizes of
 * batches, the pass over all gradients to multiply them is then left out.
 */
export function powerOfTwoNear(factor: number): number {
  return factor > 0 ? 2 ** Math.round(Math.log2(factor)) : 1
}
