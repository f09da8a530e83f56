import { actionKinds, type Span, type SpanKind } from '@tsrun/distributed/record'
import type { Window } from './division.ts'

/** One computation of a pipeline's stage. */
interface Action {
  readonly kind: SpanKind
  readonly stage: number
  readonly microbatch: number
  readonly time: number
}

/** One computation of the balanced schedule, in milliseconds of its beginning. */
export interface BalancedAction extends Window {
  readonly kind: SpanKind
  readonly microbatch: number
}

/**
 * How long each rank of a pipeline would be idle in a step if computations of one kind took equally long
 * on all stages, and messages no time: the bubble of the schedule itself, while it fills and drains.
 *
 * @param spans - of each rank
 * @param windows - of the step on each rank
 * @returns milliseconds of each rank; undefined where there is no pipeline
 */
export function balancedIdle(
  spans: readonly (readonly Span[])[],
  windows: readonly Window[],
): number[] | undefined {
  const lists = balancedSchedule(spans, windows)
  if (lists === undefined) return undefined
  const length = lengthOf(lists)
  return lists.map((list) => list.reduce((idle, { start, end }) => idle - (end - start), length))
}

/** Milliseconds until the last rank is ready. */
export function lengthOf(lists: readonly (readonly { readonly end: number }[])[]): number {
  return lists.flat().reduce((length, { end }) => Math.max(length, end), 0)
}

/**
 * The computations of each rank of a pipeline in a step, if those of one kind took equally long on all
 * stages, and messages no time. Their order is the one in which the ranks have computed.
 *
 * @param spans - of each rank
 * @param windows - of the step on each rank
 * @returns undefined where there is no pipeline
 */
export function balancedSchedule(
  spans: readonly (readonly Span[])[],
  windows: readonly Window[],
): BalancedAction[][] | undefined {
  const lists = spans.map((own, i) => actionsOf(own, windows[i]!))
  const all = lists.flat()
  const last = all.reduce((most, { stage }) => Math.max(most, stage), -1)
  if (last < 1) return undefined
  const means = meanTimes(all)
  const ended = new Map<string, number>()
  const next = lists.map(() => 0)
  const time = lists.map(() => 0)
  const balanced = lists.map((): BalancedAction[] => [])
  for (let isMoving = true; isMoving;) {
    isMoving = false
    for (const [rank, list] of lists.entries()) {
      for (let action = list[next[rank]!]; action !== undefined; action = list[next[rank]!]) {
        const ready = readyAt(action, last, ended)
        if (ready === undefined) break
        const duration = means.get(action.kind)!
        const start = Math.max(time[rank]!, ready)
        const end = start + duration
        time[rank] = end
        balanced[rank]!.push({ kind: action.kind, microbatch: action.microbatch, start, end })
        ended.set(keyOf(action), end)
        next[rank]!++
        isMoving = true
      }
    }
  }
  // Something was not recorded, so it is unknown what the others wait for.
  if (next.some((done, rank) => done < lists[rank]!.length)) return undefined
  return balanced
}

function actionsOf(spans: readonly Span[], { start, end }: Window): Action[] {
  return spans.flatMap((span): Action[] => {
    const { kind, stage, microbatch } = span
    if (!actionKinds.has(kind) || stage === undefined || microbatch === undefined) return []
    if (span.start < start || span.start >= end) return []
    return [{ kind, stage, microbatch, time: span.end - span.start }]
  })
}

function meanTimes(actions: readonly Action[]): Map<SpanKind, number> {
  const sums = new Map<SpanKind, { time: number; count: number }>()
  for (const { kind, time } of actions) {
    const sum = sums.get(kind) ?? { time: 0, count: 0 }
    sums.set(kind, { time: sum.time + time, count: sum.count + 1 })
  }
  return new Map([...sums].map(([kind, { time, count }]) => [kind, time / count]))
}

/** When what an action needs has ended; undefined while it has not. */
function readyAt(
  { kind, stage, microbatch }: Action,
  last: number,
  ended: ReadonlyMap<string, number>,
): number | undefined {
  const end = (of: 'F' | 'B' | 'I', at: number): number | undefined =>
    ended.get(`${of} ${at} ${microbatch}`)
  if (kind === 'F') return stage === 0 ? 0 : end('F', stage - 1)
  if (kind === 'W') return end('I', stage)
  const forward = end('F', stage)
  if (stage === last || forward === undefined) return forward
  return end('I', stage + 1) ?? end('B', stage + 1)
}

function keyOf({ kind, stage, microbatch }: Action): string {
  return `${kind} ${stage} ${microbatch}`
}
