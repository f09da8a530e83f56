import { actionKinds, type Span, type SpanKind } from '@tsrun/distributed/record'
import type { Window } from './division.ts'

/** A computation of a pipeline stage, with its time in milliseconds. */
interface Action {
  readonly kind: SpanKind
  readonly stage: number
  readonly microbatch: number
  readonly time: number
}

/** A computation of the balanced schedule, in milliseconds from its beginning. */
export interface BalancedAction extends Window {
  readonly kind: SpanKind
  readonly microbatch: number
}

/**
 * Computes the pipeline bubble: the idle time of each rank in a step while the pipeline fills and drains,
 * if computations of one kind took equally long on all stages and messages took no time.
 *
 * @param spans - by rank
 * @param windows - the step on each rank
 * @returns milliseconds by rank; undefined without a pipeline
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

/** Milliseconds until the last rank ends. */
export function lengthOf(lists: readonly (readonly { readonly end: number }[])[]): number {
  return lists.flat().reduce((length, { end }) => Math.max(length, end), 0)
}

/**
 * Schedules the computations of each rank in a step, in their recorded order, as if all stages took
 * equally long for each kind of computation and messages took no time.
 *
 * @param spans - by rank
 * @param windows - the step on each rank
 * @returns undefined without a pipeline
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
  // A span is missing, so some dependencies are unknown.
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

/** When all dependencies of an action have ended; undefined if any has not ended yet. */
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
