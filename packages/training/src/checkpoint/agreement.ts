import { tsrError } from '@tsrun/core'

/** What all ranks of a save have in common. */
interface Agreed {
  readonly step: number
  readonly hasOptimizer: boolean
  readonly background: boolean
  readonly compare: boolean
}

/** @throws ERR_TSR_ARGUMENT where a rank saves something else than rank 0 */
export function checkAgreement(ranks: readonly Agreed[]): void {
  const told: Record<keyof Agreed, string> = {
    step: 'step',
    hasOptimizer: 'optimizer',
    background: 'background',
    compare: 'compare',
  }
  for (const key of Object.keys(told) as (keyof Agreed)[]) {
    const wanted = ranks[0]![key]
    const rank = ranks.findIndex((each) => each[key] !== wanted)
    if (rank === -1) continue
    const value = `${String(ranks[rank]![key])} on rank ${String(rank)}`
    const expected = `${String(wanted)}, as on rank 0`
    throw tsrError('ERR_TSR_ARGUMENT', { name: told[key], value, expected })
  }
}
