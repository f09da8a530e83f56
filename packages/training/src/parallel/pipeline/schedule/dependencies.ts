import { tsrError } from '@tsrun/core'
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

/**
 * Merges the action lists of all ranks into one list in which every action follows the actions that
 * it needs. The order of each rank's actions is unchanged.
 *
 * @throws ERR_TSR_SCHEDULE naming the first action that can never run
 */
export function executionOrder(actions: ActionLists): PlacedAction[] {
  const { stages } = extentOf(actions)
  const products = new Set<string>()
  const next = actions.map(() => 0)
  const order: PlacedAction[] = []
  let moved = true
  while (moved) {
    moved = false
    actions.forEach((list, rank) => {
      for (let at = next[rank]!; at < list.length; at++) {
        const action = list[at]!
        if (!needsOf(action, stages).every((need) => products.has(need))) return
        const product = productOf(action)
        if (product !== undefined) products.add(product)
        order.push({ ...action, rank, position: at })
        next[rank] = at + 1
        moved = true
      }
    })
  }
  const stuck = actions.findIndex((list, rank) => next[rank]! < list.length)
  if (stuck === -1) return order
  const action = actions[stuck]![next[stuck]!]!
  const missing = needsOf(action, stages).find((need) => !products.has(need))
  throw tsrError('ERR_TSR_SCHEDULE', {
    problem: `rank ${stuck}, action ${next[stuck]!}: ${formatAction(action)} waits for ever for ${describe(missing!)}`,
  })
}

function describe(product: string): string {
  const [what, stage, microbatch] = product.split(' ')
  return `the ${what!} of stage ${stage!}, micro-batch ${microbatch!}`
}
