import type { Action, ActionLists } from './action.ts'
import { extentOf, needsOf, productOf, type PlacedAction } from './dependencies.ts'

export interface TimedAction extends PlacedAction {
  readonly start: number
  readonly end: number
}

export interface Costs {
  readonly work: (action: Action) => number
  /** Time from the end of a stage's action until another rank has its result. */
  readonly transfer: (stage: number, microbatch: number) => number
  /** Actions that can run at once; the others wait for a core, first come first served. */
  readonly cores: number
}

/** Runs lists that can finish (see `executionOrder`) against the clock, event by event. */
export function timeActions(actions: ActionLists, { work, transfer, cores }: Costs): TimedAction[] {
  const { stages } = extentOf(actions)
  const arrivals = new Map<
    string,
    { rank: number; stage: number; microbatch: number; at: number }
  >()
  const running = actions.map((): TimedAction | undefined => undefined)
  const next = actions.map(() => 0)
  const free = actions.map(() => 0)
  const spans: TimedAction[] = []
  let time = 0

  /** When `rank` can begin its next action; Infinity while something it needs is still to be made. */
  const readyAt = (rank: number): number => {
    const action = actions[rank]![next[rank]!]
    if (action === undefined || running[rank] !== undefined) return Infinity
    return needsOf(action, stages).reduce((latest, need) => {
      const from = arrivals.get(need)
      if (from === undefined) return Infinity
      return Math.max(
        latest,
        from.at + (from.rank === rank ? 0 : transfer(from.stage, from.microbatch)),
      )
    }, free[rank]!)
  }
  const start = (rank: number): void => {
    const action = actions[rank]![next[rank]!]!
    running[rank] = {
      ...action,
      rank,
      position: next[rank]!,
      start: time,
      end: time + work(action),
    }
    next[rank]! += 1
  }
  const finish = (rank: number, span: TimedAction): void => {
    const product = productOf(span)
    if (product !== undefined) arrivals.set(product, { ...span, at: time })
    spans.push(span)
    running[rank] = undefined
    free[rank] = time
  }

  for (;;) {
    const queue = actions
      .map((_, rank) => ({ rank, ready: readyAt(rank) }))
      .sort((a, b) => a.ready - b.ready)
    const idleCores = cores - running.filter((span) => span !== undefined).length
    const runnable = queue.filter(({ ready }) => ready <= time).slice(0, idleCores)
    for (const { rank } of runnable) start(rank)
    const arrival = queue.find(({ ready }) => ready > time)?.ready ?? Infinity
    const until = Math.min(arrival, ...running.map((span) => span?.end ?? Infinity))
    if (until === Infinity) return spans
    time = until
    running.forEach((span, rank) => {
      if (span !== undefined && span.end <= time) finish(rank, span)
    })
  }
}
