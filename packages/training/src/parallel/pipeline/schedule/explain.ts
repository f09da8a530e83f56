import { formatAction, needsOf, productOf } from './actions.ts'
import type { Simulation, TimedAction } from './simulate.ts'

/**
 * The reason why a rank is idle:
 *
 * - `fill`: the input of its first action has not been computed yet;
 * - `drain`: it has completed all its actions;
 * - `wait`: the input of its next action has not been computed yet;
 * - `message`: the input of its next action is being sent;
 * - `core`: its next action could run, but no CPU core is free.
 */
export type IdleReason = 'fill' | 'drain' | 'wait' | 'message' | 'core'

/** A period in which a rank runs no action. */
export interface IdleTime {
  readonly rank: number
  readonly start: number
  readonly end: number
  readonly reason: IdleReason
  /** The rank's next action; undefined after the last action. */
  readonly next?: TimedAction
  /** The action that delayed `next`: the last one to end among the actions that `next` needs. */
  readonly cause?: TimedAction
  /** The explanation in one sentence. */
  readonly text: string
}

/** Why the ranks of a simulated step are idle; see `explainSimulation`. */
export interface Explanation {
  /** The idle periods, ordered by rank, then by time. */
  readonly idle: readonly IdleTime[]
  /**
   * The actions that determine the length of the step, in order of time. Each one starts when the
   * previous one has ended, or when the result of the previous one has arrived. To shorten the step,
   * shorten one of these actions.
   */
  readonly criticalPath: readonly TimedAction[]
}

/**
 * Explains why ranks are idle in a simulated step, and which actions determine the length of the step.
 *
 * @example
 * explainSimulation(schedule('gpipe', { stages: 2, microbatches: 1 }).simulate()).idle[0].text
 * // 'rank 0 waits for 1B0 on rank 1, to run 0B0'
 */
export function explainSimulation({ spans, ranks, makespan }: Simulation): Explanation {
  const stages = spans.reduce((count, { stage }) => Math.max(count, stage + 1), 0)
  const producers = new Map<string, TimedAction>()
  for (const span of spans) {
    const product = productOf(span)
    if (product !== undefined) producers.set(product, span)
  }
  const causeOf = (span: TimedAction) =>
    needsOf(span, stages)
      .map((need) => producers.get(need)!)
      .sort((a, b) => b.end - a.end)[0]
  const lists = ranks.map((_, rank) =>
    spans.filter((span) => span.rank === rank).sort((a, b) => a.position - b.position),
  )
  const idle = lists.flatMap((list, rank): IdleTime[] => {
    let free = 0
    const gaps = list.flatMap((next) => {
      const start = free
      free = next.end
      return beforeNext(start, next, causeOf(next))
    })
    const text = `rank ${rank} has nothing left to do in this step`
    return [...gaps, { rank, start: free, end: makespan, reason: 'drain', text }]
  })
  const criticalPath: TimedAction[] = []
  for (let span = spans.at(-1); span !== undefined;) {
    criticalPath.unshift(span)
    const before: TimedAction | undefined = lists[span.rank]![span.position - 1]
    const cause = causeOf(span)
    const { start, ready } = span
    // Continue with the action that delayed this one: the previous user of its core, the previous action
    // of its rank, or the action that computed its input.
    if (ready < start) span = spans.findLast(({ end }) => end === start)
    else span = before !== undefined && before.end >= start ? before : (cause ?? before)
  }
  return { idle: idle.filter(({ start, end }) => end > start), criticalPath }
}

function beforeNext(start: number, next: TimedAction, cause: TimedAction | undefined): IdleTime[] {
  const { rank, ready } = next
  const action = formatAction(next)
  const computed = cause === undefined ? start : Math.max(start, cause.end)
  // Without a cause, the periods before `ready` are empty.
  const from = cause ?? next
  const periods = [
    [
      start,
      computed,
      start === 0 ? 'fill' : 'wait',
      `for ${formatAction(from)} on rank ${from.rank}`,
    ],
    [
      computed,
      ready,
      'message',
      `for the result of ${formatAction(from)}, which rank ${from.rank} has sent`,
    ],
    [ready, next.start, 'core', 'for a free core'],
  ] as const
  return periods.map(([start, end, reason, what]) => ({
    rank,
    next,
    ...(cause && { cause }),
    start,
    end,
    reason,
    text: `rank ${rank} waits ${what}, to run ${action}`,
  }))
}
