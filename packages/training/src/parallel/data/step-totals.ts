import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Arrivals } from './arrivals.ts'
import type { GradientOptions } from './options.ts'

/** What all ranks together have in a step, beside gradients. */
export interface StepTotals {
  /** What gradients are averages over: ranks, or tokens. */
  readonly count: number
  /** Parameters that no rank has used. */
  readonly unused: ReadonlySet<string>
}

/** The ranks of all axes together. */
export function countRanks(axes: readonly ProcessGroup[]): number {
  return axes.reduce((product, { size }) => product * size, 1)
}

/** Sums over all axes in one operation, or in none where nobody needs it. */
export async function sumStep(
  axes: readonly ProcessGroup[],
  { reduction, unused }: GradientOptions,
  { tokens, used, names }: { tokens: number } & Pick<Arrivals, 'used' | 'names'>,
): Promise<StepTotals> {
  const ranks = countRanks(axes)
  const marks = unused === 'zeros' ? used.map(Number) : []
  if (reduction === 'mean' && marks.length === 0) return { count: ranks, unused: new Set() }
  const [group] = axes
  const totals = group!.alloc('float64', 1 + marks.length)
  try {
    totals.set([tokens, ...marks])
    for (const axis of axes) await axis.allReduce(totals, { label: 'tokens, used parameters' })
    return {
      count: reduction === 'token' ? totals[0]! : ranks,
      unused: new Set(names.filter((_, i) => totals[i + 1] === 0)),
    }
  } finally {
    group!.free(totals)
  }
}

/** @throws ERR_TSR_UNUSED_PARAMETERS unless this rank has used all, or may leave some out */
export function checkUsed(
  { unused }: GradientOptions,
  { used, names }: Pick<Arrivals, 'used' | 'names'>,
  { rank, ranks }: Pick<ProcessGroup, 'rank' | 'ranks'>,
): void {
  if (unused === 'zeros' || used.every(Boolean)) return
  const parameters = names.filter((_, i) => used[i] === false).join(', ')
  throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: ranks[rank]!, parameters })
}

/** What an average over the ranks is multiplied by, to be one over `count`. */
export function factorOf(axes: readonly ProcessGroup[], count: number): number {
  // no example anywhere, no gradient
  return count === 0 ? 0 : countRanks(axes) / count
}
