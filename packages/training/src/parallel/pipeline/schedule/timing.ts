import type { Action, ActionLists } from './action.ts'
import { extentOf, needsOf, productOf, type PlacedAction } from './dependencies.ts'

export interface TimedAction extends PlacedAction {
  readonly start: number
  readonly end: number
}

export interface Costs {
  /** Time that an action takes with a core of its own. */
  readonly work: (action: Action) => number
  /** Time from the end of a stage's action until another rank has its result. */
  readonly transfer: (stage: number) => number
  /** When more ranks than this compute at once, all slow down alike. */
  readonly cores: number
}

interface Running {
  readonly action: PlacedAction
  readonly start: number
  /** When it ends if the speed stays as it is. */
  due: number
}

/** Runs lists that can finish (see `executionOrder`) against the clock, event by event. */
export function timeActions(actions: ActionLists, { work, transfer, cores }: Costs): TimedAction[] {
  const { stages } = extentOf(actions)
  const arrivals = new Map<string, { rank: number; stage: number; at: number }>()
  const next = actions.map(() => 0)
  const running = actions.map((): Running | undefined => undefined)
  const spans: TimedAction[] = []
  let time = 0
  let speed = 1

  /** When `rank` has all that its next action needs; Infinity while some of it is still to be made. */
  const readyAt = (rank: number): number => {
    const action = actions[rank]![next[rank]!]
    if (action === undefined || running[rank] !== undefined) return Infinity
    return needsOf(action, stages).reduce((latest, need) => {
      const from = arrivals.get(need)
      if (from === undefined) return Infinity
      return Math.max(latest, from.at + (from.rank === rank ? 0 : transfer(from.stage)))
    }, 0)
  }
  const start = (rank: number): void => {
    const action = { ...actions[rank]![next[rank]!]!, rank, position: next[rank]! }
    running[rank] = { action, start: time, due: time + work(action) / speed }
    next[rank]! += 1
  }
  const finish = (rank: number, { action, start: from }: Running): void => {
    const { stage } = action
    const product = productOf(action)
    if (product !== undefined) arrivals.set(product, { rank, stage, at: time })
    spans.push({ ...action, start: from, end: time })
    running[rank] = undefined
  }
  const changeSpeed = (): void => {
    const busy = running.filter((run) => run !== undefined)
    const now = Math.min(1, cores / busy.length)
    if (now !== speed) for (const run of busy) run.due = time + (run.due - time) * (speed / now)
    speed = now
  }

  for (;;) {
    for (let rank = 0; rank < actions.length; rank++) if (readyAt(rank) <= time) start(rank)
    changeSpeed()
    const dues = running.map((run) => run?.due ?? Infinity)
    const until = Math.min(...dues, ...actions.map((_, rank) => readyAt(rank)))
    if (until === Infinity) return spans
    time = until
    running.forEach((run, rank) => {
      if (run !== undefined && run.due <= time) finish(rank, run)
    })
  }
}
