import { argumentError } from '@tsrun/core'
import {
  extentOf,
  formatAction,
  needsOf,
  peakInFlight,
  placeOf,
  productOf,
  scheduleError,
  type ActionKind,
  type ActionLists,
  type PlacedAction,
} from './actions.ts'

/**
 * A duration: one number for all stages, or a list with one entry per stage. An entry is a number,
 * or a list with one number per micro-batch.
 */
export type Durations = number | readonly (number | readonly number[])[]

/** The durations of actions, in any unit. Simulated times have the same unit. */
export interface SimulationOptions {
  /** The duration of a stage's forward pass of one micro-batch; default 1. */
  readonly forward?: Durations
  /** The duration of a stage's backward pass of one micro-batch; default 2. */
  readonly backward?: Durations
  /** The duration of the action `I`, the first half of a backward pass; default: half of `backward`. */
  readonly inputGradient?: Durations
  /** The duration of the action `W`, the second half of a backward pass; default: half of `backward`. */
  readonly weightGradient?: Durations
  /**
   * The time to send a stage's result to another rank; default 0. The sender continues with its next
   * action meanwhile.
   */
  readonly transfer?: Durations
  /**
   * The number of CPU cores that the ranks share; default: enough for all ranks. An action waits
   * until a core is free.
   */
  readonly cores?: number
}

/** The load of one rank in a simulated step. */
export interface SimulatedRank {
  /** The total duration of the rank's actions. */
  readonly busy: number
  /** The time in which the rank runs no action: the makespan minus `busy`. */
  readonly idle: number
  /**
   * The largest number of micro-batches whose activations are held at one time. Activations are held from
   * F until B or W.
   */
  readonly peakInFlight: number
}

/** An action of a simulated step, with its times. */
export interface TimedAction extends PlacedAction {
  /**
   * The time at which the rank was free and the inputs had arrived. The action starts later if no
   * core is free.
   */
  readonly ready: number
  readonly start: number
  readonly end: number
}

/** A simulated training step. Times have the unit of the costs that were given. */
export interface Simulation {
  readonly makespan: number
  /** The bubble: the fraction of time in which ranks are idle, 1 - busy / (ranks x makespan). */
  readonly bubble: number
  readonly ranks: readonly SimulatedRank[]
  /** All actions with their times, in order of their end. */
  readonly spans: readonly TimedAction[]
}

/**
 * Simulates a schedule: each rank runs its actions in order, each one as soon as its inputs have arrived. If
 * all cores are in use, ranks get free cores in the order in which they became ready.
 *
 * @throws ERR_TSR_SCHEDULE when a rank would wait forever; ERR_TSR_ARGUMENT for invalid durations
 */
export function simulateSchedule(
  actions: ActionLists,
  { forward = 1, backward = 2, transfer = 0, cores = Infinity, ...halves }: SimulationOptions = {},
): Simulation {
  const extent = extentOf(actions)
  const times = (name: string, durations: Durations) => timesOf(name, durations, extent)
  const [forwards, backwards] = [times('forward', forward), times('backward', backward)]
  const half = (name: 'inputGradient' | 'weightGradient'): Times => {
    const durations = halves[name]
    if (durations !== undefined) return times(name, durations)
    return (stage, microbatch) => backwards(stage, microbatch) / 2
  }
  const durations: Record<ActionKind, Times> = {
    F: forwards,
    B: backwards,
    I: half('inputGradient'),
    W: half('weightGradient'),
  }
  const transfers = times('transfer', transfer)
  if (!(cores >= 1)) {
    throw argumentError('cores', cores, 'at least 1')
  }

  /** The actions whose times are known, by the names of their results. */
  const producers = new Map<string, TimedAction>()
  const next = actions.map(() => 0)
  const free = actions.map(() => 0)
  /** The times at which each core is free. More cores than ranks are never in use. */
  const freeCores = Array<number>(Math.floor(Math.min(cores, actions.length))).fill(0)
  const spans: TimedAction[] = []
  /**
   * Returns the time at which `rank` can start its next action; Infinity until the times of all
   * actions that compute its inputs are known.
   */
  const readyAt = (rank: number) => {
    const action = actions[rank]![next[rank]!]
    if (action === undefined) return Infinity
    const arrivals = needsOf(action, extent.stages).map((need) => {
      const from = producers.get(need)
      if (from === undefined) return Infinity
      return from.rank === rank ? from.end : later(from.end, transfers(from.stage, from.microbatch))
    })
    return Math.max(free[rank]!, ...arrivals)
  }

  // Set the times of actions in the order in which they become ready. An action whose ready time is still
  // unknown waits for an action without times, so it cannot be ready earlier than the next one here.
  const known = actions.map(() => Infinity)
  for (;;) {
    for (const [rank, ready] of known.entries()) {
      if (ready === Infinity) known[rank] = readyAt(rank)
    }
    const ready = Math.min(...known)
    if (ready === Infinity) break
    const rank = known.indexOf(ready)
    known[rank] = Infinity
    const core = freeCores.indexOf(Math.min(...freeCores))
    const position = next[rank]!++
    const action = actions[rank]![position]!
    const start = Math.max(ready, freeCores[core]!)
    const end = later(start, durations[action.kind](action.stage, action.microbatch))
    const span = { ...action, rank, position, ready, start, end }
    freeCores[core] = end
    free[rank] = end
    spans.push(span)
    const product = productOf(span)
    if (product !== undefined) producers.set(product, span)
  }
  for (const [rank, position] of next.entries()) {
    const action = actions[rank]![position]
    if (action === undefined) continue
    const missing = needsOf(action, extent.stages).find((need) => !producers.has(need))!
    const place = placeOf(rank, position)
    throw scheduleError(`${place}${formatAction(action)} waits for ever for ${missing}`)
  }
  return summarize(
    spans.sort((a, b) => a.end - b.end || a.rank - b.rank),
    actions.length,
  )
}

function summarize(spans: readonly TimedAction[], size: number): Simulation {
  const makespan = spans.reduce((latest, { end }) => Math.max(latest, end), 0)
  const ranks = Array.from({ length: size }, (_, rank): SimulatedRank => {
    const own = spans.filter((span) => span.rank === rank)
    const busy = own.reduce((sum, { start, end }) => sum + end - start, 0)
    return { busy, idle: makespan - busy, peakInFlight: peakInFlight(own) }
  })
  const busy = ranks.reduce((sum, rank) => sum + rank.busy, 0)
  return { makespan, bubble: makespan === 0 ? 0 : 1 - busy / (size * makespan), ranks, spans }
}

/** @throws ERR_TSR_ARGUMENT when the sum is not a finite number */
function later(time: number, duration: number) {
  const sum = time + duration
  if (sum < Infinity) return sum
  throw argumentError('the sum of durations', sum, 'a finite number')
}

type Times = (stage: number, microbatch: number) => number

function timesOf(
  name: string,
  durations: Durations,
  { stages, microbatches }: { readonly stages: number; readonly microbatches: number },
): Times {
  const fits = (list: readonly unknown[] | number, length: number) =>
    typeof list === 'number' ? list >= 0 && list < Infinity : list.length === length
  const list = typeof durations === 'number' ? [durations] : durations
  const each = list.flatMap((times) => times)
  const isGood =
    fits(durations, stages) &&
    list.every((times) => fits(times, microbatches)) &&
    each.every((time) => fits(time, 0))
  if (!isGood) {
    throw argumentError(
      name,
      JSON.stringify(durations),
      `a duration of 0 or more, or ${stages} of them (one per stage), or for a stage ${microbatches} (one per micro-batch)`,
    )
  }
  return (stage, microbatch) => {
    const times = typeof durations === 'number' ? durations : durations[stage]!
    return typeof times === 'number' ? times : times[microbatch]!
  }
}

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
  /** The explanation in one sentence. */
  readonly text: string
}

/** The idle periods and the critical path of a simulated step; see `explainSimulation`. */
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
  const lists = ranks.map((_, rank) => spans.filter((span) => span.rank === rank))
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
  // Without a cause, the first two periods are empty, so their texts are not used.
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
    start,
    end,
    reason,
    text: `rank ${rank} waits ${what}, to run ${action}`,
  }))
}
