import { tsrError } from '@tsrun/core'
import type { ActionKind, ActionLists } from './action.ts'
import { executionOrder, extentOf } from './dependencies.ts'
import { timeActions, type TimedAction } from './timing.ts'

/** One duration for all stages; or one for each; or, of a stage, one for each micro-batch. */
export type Durations = number | readonly (number | readonly number[])[]

/** How long actions take, in any unit; the result is in the same. */
export interface SimulationOptions {
  /** Forward of one micro-batch through one stage; default 1. */
  readonly forward?: Durations
  /** Backward of one micro-batch through one stage; default 2. */
  readonly backward?: Durations
  /** The half `I` of a backward; default half of `backward`. */
  readonly inputGradient?: Durations
  /** The half `W` of a backward; default half of `backward`. */
  readonly weightGradient?: Durations
  /** Until a result of a stage is there on another rank; the sender goes on meanwhile. Default 0. */
  readonly transfer?: Durations
  /** Cores that the ranks share: an action also waits until one is free. Default: enough. */
  readonly cores?: number
}

export interface SimulatedRank {
  /** Time spent in actions. */
  readonly busy: number
  /** The rest of the makespan. */
  readonly idle: number
  /** Most micro-batches whose activations are held at once: from F to B, or to W. */
  readonly peakInFlight: number
}

export interface Simulation {
  readonly makespan: number
  /** Idle share of all ranks' time: 1 - busy / (ranks x makespan). */
  readonly bubble: number
  readonly ranks: readonly SimulatedRank[]
  /** In the order in which they end. */
  readonly spans: readonly TimedAction[]
}

/**
 * Times a schedule: each rank runs its actions in order, each as soon as what it needs has arrived.
 *
 * @throws ERR_TSR_SCHEDULE when some rank waits for ever; ERR_TSR_ARGUMENT for bad durations
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
      expected: `a duration of 0 or more, or ${stages} of them (one a stage), or of a stage ${microbatches} (one a micro-batch)`,
    })
  }
  return (stage, microbatch) => {
    const times = typeof durations === 'number' ? durations : durations[stage]!
    return typeof times === 'number' ? times : times[microbatch]!
  }
}
