import { argumentError } from '@tsrun/core'
import type { Action, ActionKind, ActionLists } from './actions.ts'
import { executionOrder, extentOf, needsOf, productOf, type PlacedAction } from './dependencies.ts'

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

/** What a rank does in a simulated step. */
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
 * Simulates a schedule: each rank runs its actions in order, each one as soon as its inputs have arrived.
 *
 * @throws ERR_TSR_SCHEDULE when a rank would wait forever; ERR_TSR_ARGUMENT for invalid durations
 */
export function simulateSchedule(
  actions: ActionLists,
  { forward = 1, backward = 2, transfer = 0, cores = Infinity, ...halves }: SimulationOptions = {},
): Simulation {
  const extent = extentOf(actions)
  const { inputGradient, weightGradient } = halves
  const times = (name: string, durations: Durations): Times => timesOf(name, durations, extent)
  const half = (name: string, durations: Durations | undefined): Times => {
    if (durations !== undefined) return times(name, durations)
    const whole = times('backward', backward)
    return (stage, microbatch) => whole(stage, microbatch) / 2
  }
  const durations: Record<ActionKind, Times> = {
    F: times('forward', forward),
    B: times('backward', backward),
    I: half('inputGradient', inputGradient),
    W: half('weightGradient', weightGradient),
  }
  const transfers = times('transfer', transfer)
  if (!(cores >= 1)) {
    throw argumentError('cores', cores, 'at least 1')
  }
  executionOrder(actions)
  const spans = timeActions(actions, {
    work: ({ kind, stage, microbatch }) => durations[kind](stage, microbatch),
    transfer: transfers,
    cores,
  })
  return summarize(spans, actions.length)
}

interface Costs {
  readonly work: (action: Action) => number
  /** Returns the time from the end of a stage's action until another rank has the result. */
  readonly transfer: (stage: number, microbatch: number) => number
  /**
   * The number of actions that can run at once. If all cores are in use, ranks get free cores in the
   * order in which they became ready.
   */
  readonly cores: number
}

/** Simulates lists of actions that do not deadlock (see `executionOrder`), event by event. */
function timeActions(actions: ActionLists, { work, transfer, cores }: Costs): TimedAction[] {
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

  /**
   * Returns the time at which `rank` can start its next action; Infinity while an input has not
   * been computed.
   */
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
  const start = (rank: number, ready: number): void => {
    const action = actions[rank]![next[rank]!]!
    running[rank] = {
      ...action,
      rank,
      position: next[rank]!,
      ready,
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

  // Cache known times. A known time never changes, because it depends only on results that are
  // already computed.
  const ready = actions.map(() => Infinity)
  for (;;) {
    ready.forEach((known, rank) => {
      if (known === Infinity) ready[rank] = readyAt(rank)
    })
    const idleCores = cores - running.filter((span) => span !== undefined).length
    const runnable = [...ready.keys()]
      .filter((rank) => ready[rank]! <= time)
      .sort((a, b) => ready[a]! - ready[b]!)
      .slice(0, idleCores)
    for (const rank of runnable) {
      start(rank, ready[rank]!)
      ready[rank] = Infinity
    }
    const arrival = Math.min(...ready.filter((known) => known > time))
    const until = Math.min(arrival, ...running.map((span) => span?.end ?? Infinity))
    if (until === Infinity) return spans
    time = until
    running.forEach((span, rank) => {
      if (span !== undefined && span.end <= time) finish(rank, span)
    })
  }
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

function peakInFlight(own: readonly TimedAction[]): number {
  let inFlight = 0
  let peak = 0
  for (const { kind } of own) {
    if (kind === 'F') inFlight += 1
    if (kind === 'B' || kind === 'W') inFlight -= 1
    peak = Math.max(peak, inFlight)
  }
  return peak
}

type Times = (stage: number, microbatch: number) => number

function timesOf(
  name: string,
  durations: Durations,
  { stages, microbatches }: { readonly stages: number; readonly microbatches: number },
): Times {
  const fits = (list: readonly unknown[] | number, length: number): boolean =>
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
