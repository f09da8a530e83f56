import {
  extentOf,
  formatAction,
  scheduleError,
  type Action,
  type ActionKind,
  type ActionLists,
} from './actions.ts'
import { simulateSchedule } from './simulate.ts'

/**
 * Checks that lists of actions form a valid schedule. Every stage must be on one rank. Each stage
 * must run the forward pass of every micro-batch once, and later its backward pass once: whole
 * (`B`), or in halves (`I`, then `W`). No rank may wait forever.
 *
 * @throws ERR_TSR_SCHEDULE naming the first wrong action, in the order of the ranks
 */
export function validateSchedule(actions: ActionLists): void {
  const { stages, microbatches, rankOfStage } = extentOf(actions)
  if (microbatches === 0) throw scheduleError('it has no actions')
  const done = new Set<string>()
  actions.forEach((list, rank) => {
    list.forEach((action, position) => {
      const problem = problemOf(action, rank, rankOfStage[action.stage]!, done)
      if (problem !== undefined) {
        throw scheduleError(`rank ${rank}, action ${position}: ${formatAction(action)} ${problem}`)
      }
      done.add(formatAction(action))
    })
  })
  for (let stage = 0; stage < stages; stage++) {
    for (let microbatch = 0; microbatch < microbatches; microbatch++) {
      const kind = missingKind(stage, microbatch, done)
      if (kind !== undefined) {
        const missing = formatAction({ kind, stage, microbatch })
        throw scheduleError(`${missing} is missing (rank ${rankOfStage[stage] ?? 'none'})`)
      }
    }
  }
  // The simulation throws if an action can never run.
  simulateSchedule(actions)
}

/** The limit on stage and micro-batch numbers: the text format allows six digits. */
const MOST = 1e6

/** @param owner - the rank of the action's stage */
function problemOf(
  action: Action,
  rank: number,
  owner: number,
  done: ReadonlySet<string>,
): string | undefined {
  const { kind, stage, microbatch } = action
  if (!['F', 'B', 'I', 'W'].includes(kind)) return 'is neither F, B, I nor W'
  const fits = [stage, microbatch].every(
    (value) => Number.isSafeInteger(value) && value >= 0 && value < MOST,
  )
  if (!fits) return `needs whole numbers from 0 to ${MOST - 1}`
  if (owner !== rank) return `runs here, but stage ${stage} is on rank ${owner}`
  const ran = (kind: ActionKind) => done.has(formatAction({ ...action, kind }))
  if (ran(kind)) return 'runs twice'
  if (kind === 'F') return undefined
  if (kind === 'B' && (ran('I') || ran('W'))) return 'repeats a backward pass that ran in halves'
  if (kind !== 'B' && ran('B')) return 'repeats a whole backward pass'
  if (kind === 'W') return ran('I') ? undefined : 'comes before the gradient of its input (I)'
  return ran('F') ? undefined : 'comes before its forward pass'
}

function missingKind(
  stage: number,
  microbatch: number,
  done: ReadonlySet<string>,
): ActionKind | undefined {
  const ran = (kind: ActionKind) => done.has(formatAction({ kind, stage, microbatch }))
  if (!ran('F')) return 'F'
  if (ran('I') && !ran('W')) return 'W'
  return ran('B') || ran('W') ? undefined : 'B'
}
