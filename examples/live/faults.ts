import {
  runWorld,
  type ProcessGroup,
  type RankError,
  type WorldFault,
} from '@tsrun/training/browser'

/** The faults of the page, by the text of their button. */
export const faults = {
  stop: 'Stop rank 2',
  cut: 'Cut the links of rank 1',
  corrupt: 'Change a byte on the way',
  mismatch: 'Mismatch a call on rank 2',
  deadlock: 'Let every rank receive',
  late: 'Keep rank 2 busy',
} as const

export type FaultName = keyof typeof faults

/** What the ranks do while nothing fails, for the page to show it. */
export const RANKS = 4
export const CALLS = 30
/** The call in which the programs with a mistake go wrong. */
const WRONG = 3

const injected: Partial<Record<FaultName, WorldFault>> = {
  stop: { kind: 'lose', rank: 2, round: 40 },
  cut: { kind: 'half-close', rank: 1, round: 40 },
  corrupt: { kind: 'corrupt', rank: 1, round: 40 },
}

/**
 * The call of a program that goes wrong; undefined: it makes the usual call.
 *
 * @param failure - settles when a rank has failed
 */
function wrongCall(
  name: FaultName,
  group: ProcessGroup,
  failure: Promise<void>,
): PromiseLike<unknown> | undefined {
  const isWrong = group.rank === 2
  if (name === 'deadlock') return group.recv(new Float32Array(1), group.next)
  if (name === 'mismatch' && isWrong) return group.allReduce(new Float32Array(5))
  if (name !== 'late') return undefined
  return isWrong ? failure : group.allReduce(new Float32Array(4), { timeout: 1000 })
}

/** A failed world. */
export interface Failure {
  /** Sorted by cause. */
  readonly errors: readonly RankError[]
  /** The number of calls that each rank had completed. */
  readonly completed: readonly number[]
}

/** Runs all-reduces on four ranks until one of them fails. */
export async function breakWorld(name: FaultName): Promise<Failure> {
  const completed = new Array<number>(RANKS).fill(0)
  const fault = injected[name]
  let errors: readonly RankError[] = []
  let reportFailure = (): void => undefined
  const failure = new Promise<void>((resolve) => {
    reportFailure = resolve
  })
  const world = {
    size: RANKS,
    memory: 8 << 20,
    faults: fault === undefined ? [] : [fault],
    onErrors: (found: readonly RankError[]) => {
      errors = found
    },
  }
  try {
    await runWorld(world, async (group) => {
      try {
        for (let call = 0; call < CALLS; call++) {
          const wrong = call === WRONG ? wrongCall(name, group, failure) : undefined
          await (wrong ?? group.allReduce(new Float32Array(4)))
          completed[group.rank]!++
        }
      } catch (error) {
        reportFailure()
        throw error
      }
    })
  } catch (error) {
    // What the world cannot even begin has no errors of ranks.
    if (errors.length === 0) throw error
  }
  return { errors, completed }
}
