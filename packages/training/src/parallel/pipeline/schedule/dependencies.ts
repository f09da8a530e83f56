import { tsrError, type TsrError } from '@tsrun/core'
import { formatAction, type Action, type ActionLists } from './actions.ts'

/** An action, the rank that runs it, and its index in that rank's list. */
export interface PlacedAction extends Action {
  readonly rank: number
  readonly position: number
}

/** The number of stages and micro-batches in lists of actions, and the rank of each stage. */
export interface Extent {
  readonly stages: number
  readonly microbatches: number
  readonly rankOfStage: readonly number[]
}

export function extentOf(actions: ActionLists): Extent {
  const rankOfStage: number[] = []
  let microbatches = 0
  actions.forEach((list, rank) => {
    for (const { stage, microbatch } of list) {
      rankOfStage[stage] ??= rank
      microbatches = Math.max(microbatches, microbatch + 1)
    }
  })
  return { stages: rankOfStage.length, microbatches, rankOfStage }
}

/**
 * Names the result of an action that other actions need: the stage's output, or the gradient of its
 * input.
 */
export function productOf({ kind, stage, microbatch }: Action): string | undefined {
  if (kind === 'W') return undefined
  return `${kind === 'F' ? 'activation' : 'gradient'} ${stage} ${microbatch}`
}

/** Names the results that an action needs before it can run. */
export function needsOf({ kind, stage, microbatch }: Action, stages: number): string[] {
  const activation = (of: number): string => `activation ${of} ${microbatch}`
  const gradient = (of: number): string => `gradient ${of} ${microbatch}`
  switch (kind) {
    case 'F':
      return stage === 0 ? [] : [activation(stage - 1)]
    case 'B':
    case 'I':
      return stage === stages - 1 ? [activation(stage)] : [activation(stage), gradient(stage + 1)]
    case 'W':
      return [gradient(stage)]
  }
}

/** Returns the error about an action that can never run, because it needs what is never computed. */
export function stuckError(action: PlacedAction, missing: string): TsrError {
  const [what, stage, microbatch] = missing.split(' ')
  const needed = `the ${what!} of stage ${stage!}, micro-batch ${microbatch!}`
  const place = `rank ${action.rank}, action ${action.position}`
  return tsrError('ERR_TSR_SCHEDULE', {
    problem: `${place}: ${formatAction(action)} waits for ever for ${needed}`,
  })
}
