import type { Kernels } from '../../../../packages/distributed/src/kernels/kernels.ts'
import { dtypes } from '../../../../packages/distributed/src/dtype.ts'
import type { CoreCosts } from './cluster.ts'
import type { EventQueue } from './event-queue.ts'

/** A host: its cores and its link, and until when each of them is busy. */
export class SimulatedHost {
  /** By core. */
  readonly #free: number[]
  readonly #last: (SimulatedRank | undefined)[]
  readonly #waking: number
  /** Until when the link sends and receives what has come to it. */
  sending = 0
  receiving = 0

  /** @param waking - what it costs a rank to continue after it has waited */
  constructor(cores: number, waking: number) {
    this.#free = Array.from({ length: cores }, () => 0)
    this.#last = Array.from({ length: cores }, () => undefined)
    this.#waking = waking
  }

  /** A core for a rank that can continue at this time: the one that it had, or the first free one. */
  takeCore(rank: SimulatedRank, time: number): { core: number; from: number } {
    const former = this.#last.indexOf(rank)
    const core = former >= 0 && this.#free[former]! <= time ? former : this.#indexOfFirst()
    this.#last[core] = rank
    return { core, from: Math.max(time, this.#free[core]!) + this.#waking }
  }

  giveCore(core: number, time: number): void {
    this.#free[core] = time
  }

  #indexOfFirst(): number {
    const unused = this.#last.indexOf(undefined)
    return unused >= 0 ? unused : this.#free.indexOf(Math.min(...this.#free))
  }
}

/** A part of the work of a rank that begins when something has come; it uses the rank's time. */
type Arrival = () => void

/** What a rank runs: it continues as far as it can and returns whether it has ended. */
type Body = () => boolean

/**
 * A rank with a clock of its own, which runs ahead of the events as long as nothing has to be waited
 * for, as with an inline engine: what comes in the meantime is looked at when the rank waits.
 */
export class SimulatedRank {
  readonly kernels: Kernels
  /** How far it has come. */
  clock = 0
  readonly #events: EventQueue
  readonly #host: SimulatedHost
  readonly #arrivals: { readonly time: number; readonly arrival: Arrival }[] = []
  readonly #calling: number
  #body: Body = () => true
  #endedAt: number | undefined
  #isScheduled = false

  constructor(events: EventQueue, host: SimulatedHost, costs: CoreCosts) {
    this.#events = events
    this.#host = host
    this.#calling = costs.calling
    this.kernels = countingKernels(this, costs)
  }

  /** When its body has ended. */
  get endedAt(): number | undefined {
    return this.#endedAt
  }

  /** Calls a collective at the beginning of time. */
  start(body: Body): void {
    this.#body = body
    this.#arrive(0, () => {
      this.spend(this.#calling)
    })
  }

  /** Uses a core for so long. */
  spend(seconds: number): void {
    this.clock += seconds
  }

  /** Something comes to this rank at a time from now on. */
  expect(time: number, arrival: Arrival): void {
    this.#events.at(time, () => {
      this.#arrive(time, arrival)
    })
  }

  #arrive(time: number, arrival: Arrival): void {
    this.#arrivals.push({ time, arrival })
    if (!this.#isScheduled) this.#schedule(time)
  }

  #schedule(time: number): void {
    this.#isScheduled = true
    this.#events.at(Math.max(time, this.clock), () => {
      this.#continue(Math.max(time, this.clock))
    })
  }

  #continue(time: number): void {
    const { core, from } = this.#host.takeCore(this, time)
    this.clock = from
    const next = this.#workOff()
    this.#host.giveCore(core, this.clock)
    this.#isScheduled = false
    if (next !== undefined) this.#schedule(next)
  }

  /** Works until nothing has come that was not looked at; the time of what comes next, if known. */
  #workOff(): number | undefined {
    for (;;) {
      const next = this.#arrivals[0]
      if (next === undefined) return undefined
      if (next.time > this.clock) return next.time
      this.#arrivals.shift()
      next.arrival()
      if (this.#endedAt === undefined && this.#body()) this.#endedAt = this.clock
    }
  }
}

/** Kernels that move no data and only use the time of a rank. */
function countingKernels(rank: SimulatedRank, costs: CoreCosts): Kernels {
  const { combinePerByte, copyPerByte } = costs
  const pass = (bytes: number): void => {
    rank.spend(bytes * copyPerByte)
  }
  return {
    combine: (_op, dtype, _out, _a, _b, count) => {
      rank.spend(count * dtypes[dtype].bytes * combinePerByte)
    },
    scale: (dtype, _at, count) => {
      pass(count * dtypes[dtype].bytes)
    },
    narrow: (_dtype, _out, _a, count) => {
      pass(4 * count)
    },
    widen: (_dtype, _out, _a, count) => {
      pass(4 * count)
    },
    copy: (to, from, bytes) => {
      if (to !== from) pass(bytes)
    },
    awaitCount: () => 1,
    awaitChange: () => 1,
  }
}
