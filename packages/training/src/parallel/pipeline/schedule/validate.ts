import { tsrError, type TsrError } from '@tsrun/core'
import { formatAction, type Action, type ActionLists } from './actions.ts'
import { extentOf } from './dependencies.ts'
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
  if (microbatches === 0) throw impossible('it has no actions')
  const done = new Set<string>()
  actions.forEach((list, rank) => {
    list.forEach((action, position) => {
      const problem =
        numbersProblem(action) ??
        placeProblem(action, rank, rankOfStage) ??
        orderProblem(action, done)
      if (problem !== undefined) {
        throw impossible(`rank ${rank}, action ${position}: ${formatAction(action)} ${problem}`)
      }
      done.add(formatAction(action))
    })
  })
  for (let stage = 0; stage < stages; stage++) {
    for (let microbatch = 0; microbatch < microbatches; microbatch++) {
      const missing = missingAction(stage, microbatch, done)
      if (missing !== undefined) {
        throw impossible(
          `${formatAction(missing)} is missing (rank ${rankOfStage[stage] ?? 'none'})`,
        )
      }
    }
  }
  // The simulation throws if an action can never run.
  simulateSchedule(actions)
}

/** The limit on stage and micro-batch numbers: the text format allows six digits. */
const MOST = 1e6

function numbersProblem({ kind, stage, microbatch }: Action): string | undefined {
  if (!['F', 'B', 'I', 'W'].includes(kind)) return 'is neither F, B, I nor W'
  const fits = [stage, microbatch].every(
    (value) => Number.isSafeInteger(value) && value >= 0 && value < MOST,
  )
  return fits ? undefined : `needs whole numbers from 0 to ${MOST - 1}`
}

function placeProblem(
  { stage }: Action,
  rank: number,
  rankOfStage: readonly number[],
): string | undefined {
  const owner = rankOfStage[stage]!
  return owner === rank ? undefined : `runs here, but stage ${stage} is on rank ${owner}`
}

function orderProblem(action: Action, done: ReadonlySet<string>): string | undefined {
  const { kind } = action
  const ran = (kind: Action['kind']): boolean => done.has(formatAction({ ...action, kind }))
  if (ran(kind)) return 'runs twice'
  if (kind === 'F') return undefined
  if (kind === 'B' && (ran('I') || ran('W'))) return 'repeats a backward pass that ran in halves'
  if (kind !== 'B' && ran('B')) return 'repeats a whole backward pass'
  if (kind === 'W') return ran('I') ? undefined : 'comes before the gradient of its input (I)'
  return ran('F') ? undefined : 'comes before its forward pass'
}

function missingAction(
  stage: number,
  microbatch: number,
  done: ReadonlySet<string>,
): Action | undefined {
  const ran = (kind: Action['kind']): boolean => done.has(formatAction({ kind, stage, microbatch }))
  if (!ran('F')) return { kind: 'F', stage, microbatch }
  if (ran('I') && !ran('W')) return { kind: 'W', stage, microbatch }
  return ran('B') || ran('W') ? undefined : { kind: 'B', stage, microbatch }
}

function impossible(problem: string): TsrError {
  return tsrError('ERR_TSR_SCHEDULE', { problem })
}
