import { argumentError, choice, count, declareOptions } from '@tsrun/core'

const kinds = ['lose', 'pause', 'slow', 'corrupt', 'half-close'] as const

const readFault = declareOptions(
  {
    kind: choice(...kinds),
    rank: count(),
    peer: count().optional(),
    round: count({ from: 1 }).optional(),
    rounds: count({ from: 1 }).default(100),
  },
  'fault',
)

/**
 * A fault to inject into a rank of an in-process world. The world runs in rounds. Each round polls
 * every rank once. The same seed gives the same sequence of rounds.
 */
export interface WorldFault {
  /**
   * - `lose`: the rank closes its connections without notice, and its operations fail.
   * - `pause`: the rank does nothing for `rounds` rounds.
   * - `slow`: the rank sends and receives byte by byte for `rounds` rounds.
   * - `corrupt`: changes one byte of the next data that the rank sends.
   * - `half-close`: the rank can receive but no longer send.
   */
  readonly kind: (typeof kinds)[number]
  readonly rank: number
  /** For `half-close`: the only rank to which `rank` can no longer send. Default: all ranks. */
  readonly peer?: number
  /** The round in which the fault begins, from 1. Default: the next round. */
  readonly round?: number
  /** The duration of `pause` and `slow` in rounds. Default 100. */
  readonly rounds?: number
}

/** Faults to inject, or a function that is called with a function that injects a fault at any time. */
export type FaultSource = readonly WorldFault[] | ((inject: (fault: WorldFault) => void) => void)

type Fault = ReturnType<typeof readFault> & { readonly round: number }

interface FaultTarget {
  readonly lose: (rank: number) => void
  readonly halfClose: (rank: number, peer: number | undefined) => void
}

/** Injects faults into an in-process world, round by round. */
export class WorldFaults {
  readonly #faults: Fault[] = []
  readonly #corrupting = new Set<number>()
  readonly #size: number
  #round = 0

  /** @throws ERR_TSR_ARGUMENT */
  constructor(source: FaultSource, size: number) {
    this.#size = size
    const inject = (fault: WorldFault): void => {
      this.#add(fault)
    }
    if (typeof source === 'function') source(inject)
    else source.forEach(inject)
  }

  #add(fault: WorldFault): void {
    const read = readFault(fault)
    const { kind, rank, peer, round = this.#round + 1 } = read
    if (rank >= this.#size) {
      throw argumentError('fault.rank', String(rank), `a rank below ${this.#size}`)
    }
    if (peer !== undefined && (kind !== 'half-close' || peer >= this.#size || peer === rank)) {
      throw argumentError(
        'fault.peer',
        `${peer} of ${kind}`,
        `another rank below ${this.#size}, of half-close`,
      )
    }
    this.#faults.push({ ...read, round })
  }

  begin({ lose, halfClose }: FaultTarget): void {
    this.#round++
    for (const { kind, rank, peer, round } of this.#faults) {
      if (round !== this.#round) continue
      if (kind === 'lose') lose(rank)
      else if (kind === 'half-close') halfClose(rank, peer)
      else if (kind === 'corrupt') this.#corrupting.add(rank)
    }
  }

  isPaused(rank: number): boolean {
    return this.#lasts('pause', rank)
  }

  isSlow(rank: number): boolean {
    return this.#lasts('slow', rank)
  }

  /** Whether a rank is paused. Rounds must then continue even if no data moves. */
  get isHoldingUp(): boolean {
    return this.#faults.some(
      ({ kind, round, rounds }) => kind === 'pause' && this.#isWithin(round, rounds),
    )
  }

  /** Applies the faults of a rank to bytes that the rank sends. Returns the bytes that arrive. */
  alter(rank: number, bytes: Uint8Array): Uint8Array {
    if (bytes.length === 0 || !this.#corrupting.delete(rank)) return bytes
    const altered = bytes.slice()
    altered[0]! ^= 0xff
    return altered
  }

  #lasts(wanted: Fault['kind'], of: number): boolean {
    return this.#faults.some(
      ({ kind, rank, round, rounds }) =>
        kind === wanted && rank === of && this.#isWithin(round, rounds),
    )
  }

  #isWithin(round: number, rounds: number): boolean {
    return this.#round >= round && this.#round < round + rounds
  }
}
