import { actionKinds, type Span, type SpanKind } from '@tsrun/distributed/record'
import type { Window } from './division.ts'

/** The span of a computation of a pipeline stage. */
type Action = Span & { readonly stage: number; readonly microbatch: number }

/** A computation of the balanced schedule, in milliseconds from its beginning. */
interface BalancedAction extends Window {
  readonly kind: SpanKind
  readonly microbatch: number
}

/**
 * Schedules the computations of each rank in a step, in their recorded order, as if all stages took
 * equally long for each kind of computation and messages took no time.
 *
 * @param spans - by rank
 * @param windows - the step on each rank
 * @returns undefined without a pipeline; otherwise in milliseconds
 */
export function balancedSchedule(spans: readonly (readonly Span[])[], windows: readonly Window[]) {
  const lists = spans.map((own, rank) =>
    own.filter((span): span is Action => isAction(span, windows[rank]!)),
  )
  const all = lists.flat()
  const last = all.reduce((most, { stage }) => Math.max(most, stage), -1)
  if (last < 1) return undefined
  const means = new Map([...actionKinds].map((kind) => [kind, meanTime(all, kind)]))
  const ended = new Map<string, number>()
  const actions = lists.map((): BalancedAction[] => [])
  let length = 0
  for (let isMoving = true; isMoving;) {
    isMoving = false
    for (const [rank, list] of lists.entries()) {
      const done = actions[rank]!
      for (let next = done.length; next < list.length; next++) {
        const action = list[next]!
        const ready = readyAt(action, last, ended)
        if (ready === undefined) break
        const { kind, stage, microbatch } = action
        const start = Math.max(done.at(-1)?.end ?? 0, ready)
        const end = start + means.get(kind)!
        done.push({ kind, microbatch, start, end })
        ended.set(`${kind} ${stage} ${microbatch}`, end)
        length = Math.max(length, end)
        isMoving = true
      }
    }
  }
  // If a span is missing, some dependencies are unknown.
  if (actions.some((done, rank) => done.length < lists[rank]!.length)) return undefined
  return {
    /** The computations of each rank, from the beginning of the schedule. */
    actions,
    /** Time at which the last rank ends. */
    length,
    /** The pipeline bubble: the idle time of each rank while the pipeline fills and drains. */
    idle: actions.map((done) =>
      done.reduce((idle, { start, end }) => idle - (end - start), length),
    ),
  }
}

function isAction({ kind, stage, microbatch, start }: Span, window: Window) {
  const isComputation = actionKinds.has(kind) && stage !== undefined && microbatch !== undefined
  return isComputation && start >= window.start && start < window.end
}

function meanTime(actions: readonly Action[], kind: SpanKind) {
  const own = actions.filter((action) => action.kind === kind)
  return own.reduce((sum, { start, end }) => sum + (end - start), 0) / own.length
}

/**
 * Returns the time at which all dependencies of an action have ended; undefined if any has not ended yet.
 */
function readyAt(
  { kind, stage, microbatch }: Action,
  last: number,
  ended: ReadonlyMap<string, number>,
) {
  const end = (of: 'F' | 'B' | 'I', at: number) => ended.get(`${of} ${at} ${microbatch}`)
  if (kind === 'F') return stage === 0 ? 0 : end('F', stage - 1)
  if (kind === 'W') return end('I', stage)
  const forward = end('F', stage)
  if (stage === last || forward === undefined) return forward
  return end('I', stage + 1) ?? end('B', stage + 1)
}
