import { tsrError } from '@tsrun/core'
import type { Action, ActionKind, ActionLists } from './actions.ts'
import { executionOrder, extentOf, needsOf, productOf, type PlacedAction } from './dependencies.ts'

/** One duration for all stages, or one per stage, or for a stage one per micro-batch. */
export type Durations = number | readonly (number | readonly number[])[]

/** How long actions take, in any unit; the result has the same unit. */
export interface SimulationOptions {
  /** Forward of one micro-batch through one stage; default 1. */
  readonly forward?: Durations
  /** Backward of one micro-batch through one stage; default 2. */
  readonly backward?: Durations
  /** The half `I` of a backward; default half of `backward`. */
  readonly inputGradient?: Durations
  /** The half `W` of a backward; default half of `backward`. */
  readonly weightGradient?: Durations
  /** The time until another rank has a stage's result; the sender continues meanwhile. Default 0. */
  readonly transfer?: Durations
  /** Cores that the ranks share: an action waits until one is free. Default: enough for all. */
  readonly cores?: number
}

export interface SimulatedRank {
  /** Time spent in actions. */
  readonly busy: number
  /** The makespan minus `busy`. */
  readonly idle: number
  /** The most micro-batches whose activations are held at one time: from F until B or W. */
  readonly peakInFlight: number
}

export interface TimedAction extends PlacedAction {
  /** When its rank was free and its inputs had arrived; it starts later if no core is free. */
  readonly ready: number
  readonly start: number
  readonly end: number
}

export interface Simulation {
  readonly makespan: number
  /** The idle fraction of all ranks' time: 1 - busy / (ranks x makespan). */
  readonly bubble: number
  readonly ranks: readonly SimulatedRank[]
  /** In the order in which they end. */
  readonly spans: readonly TimedAction[]
}

/**
 * Times a schedule: each rank runs its actions in order, each as soon as its inputs have arrived.
 *
 * @throws ERR_TSR_SCHEDULE when a rank waits for ever; ERR_TSR_ARGUMENT for impossible durations
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
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'cores', value: cores, expected: 'at least 1' })
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
  /** Time from the end of a stage's action until another rank has its result. */
  readonly transfer: (stage: number, microbatch: number) => number
  /** The number of actions that can run at once; others wait for a core, first come, first served. */
  readonly cores: number
}

/** Runs lists that can finish (see `executionOrder`), event by event. */
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

  /** When `rank` can begin its next action; Infinity while an input is missing. */
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

  // A known time never changes: it depends only on results that are already computed.
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
    throw tsrError('ERR_TSR_ARGUMENT', {
      name,
      value: JSON.stringify(durations),
      expected: `a duration of 0 or more, or ${stages} of them (one per stage), or for a stage ${microbatches} (one per micro-batch)`,
    })
  }
  return (stage, microbatch) => {
    const times = typeof durations === 'number' ? durations : durations[stage]!
    return typeof times === 'number' ? times : times[microbatch]!
  }
}
