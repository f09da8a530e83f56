import { choice, count, declareOptions, tsrError } from '@tsrun/core'

const kinds = ['lose', 'pause', 'slow', 'corrupt', 'half-close'] as const

const readFault = declareOptions(
  {
    kind: choice(...kinds),
    rank: count(),
    round: count({ from: 1 }),
    rounds: count({ from: 1 }).default(100),
  },
  'fault',
)

/**
 * What happens to a rank of an in-process world. The world moves in rounds, and each round moves every rank
 * once; the same seed gives the same rounds.
 */
export interface WorldFault {
  /**
   * `lose`: the rank ends without a word, and what it runs fails. `pause`: it does nothing for `rounds`
   * rounds. `slow`: it sends and receives byte by byte for `rounds` rounds. `corrupt`: a byte of the next
   * piece that it sends is changed. `half-close`: it can no longer send.
   */
  readonly kind: (typeof kinds)[number]
  readonly rank: number
  /** The round in which it begins, from 1. */
  readonly round: number
  /** Of `pause` and `slow`. Default 100. */
  readonly rounds?: number
}

type Fault = ReturnType<typeof readFault>

/** What faults do to the parts of a world. */
interface FaultTarget {
  readonly lose: (rank: number) => void
  readonly halfClose: (rank: number) => void
}

/** The faults of an in-process world, and what they do at this moment. */
export class WorldFaults {
  readonly #faults: readonly Fault[]
  readonly #corrupting = new Set<number>()
  #round = 0

  /** @throws ERR_TSR_ARGUMENT */
  constructor(faults: readonly WorldFault[], size: number) {
    this.#faults = faults.map((fault) => {
      const read = readFault(fault)
      if (read.rank < size) return read
      const expected = `a rank below ${size}`
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'fault.rank', value: String(read.rank), expected })
    })
  }

  /** The next round begins. */
  begin({ lose, halfClose }: FaultTarget): void {
    this.#round++
    for (const { kind, rank, round } of this.#faults) {
      if (round !== this.#round) continue
      if (kind === 'lose') lose(rank)
      else if (kind === 'half-close') halfClose(rank)
      else if (kind === 'corrupt') this.#corrupting.add(rank)
    }
  }

  isPaused(rank: number): boolean {
    return this.#lasts('pause', rank)
  }

  isSlow(rank: number): boolean {
    return this.#lasts('slow', rank)
  }

  /** Whether more rounds must pass before a rank continues. */
  get isHoldingUp(): boolean {
    return this.#faults.some(
      ({ kind, round, rounds }) => kind === 'pause' && this.#isWithin(round, rounds),
    )
  }

  /** What a rank sends, as it arrives. */
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
