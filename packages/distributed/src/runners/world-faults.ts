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

/** Faults to inject, or a function whose argument `inject` injects a fault at any time. */
export type FaultSource = readonly WorldFault[] | ((inject: (fault: WorldFault) => void) => void)

/**
 * Injects faults into an in-process world, round by round.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function worldFaults(source: FaultSource, size: number) {
  const faults: (ReturnType<typeof readFault> & { readonly round: number })[] = []
  const corrupting = new Set<number>()
  let current = 0
  const inject = (fault: WorldFault): void => {
    const read = readFault(fault)
    const { kind, rank, peer, round = current + 1 } = read
    if (rank >= size) throw argumentError('fault.rank', String(rank), `a rank below ${size}`)
    if (peer !== undefined && (kind !== 'half-close' || peer >= size || peer === rank)) {
      const expected = `another rank below ${size}, of half-close`
      throw argumentError('fault.peer', `${peer} of ${kind}`, expected)
    }
    faults.push({ ...read, round })
  }
  if (typeof source === 'function') source(inject)
  else source.forEach(inject)
  return {
    /** Starts the next round. Returns the faults that begin in it. */
    begin: () => {
      current++
      const beginning = faults.filter(({ round }) => round === current)
      for (const { kind, rank } of beginning) if (kind === 'corrupt') corrupting.add(rank)
      return beginning
    },
    /** Whether rank `of` is paused or slow. If `of` is undefined: whether any rank is paused or slow. */
    lasts: (wanted: 'pause' | 'slow', of?: number) =>
      faults.some(
        ({ kind, rank, round, rounds }) =>
          kind === wanted && rank === (of ?? rank) && current >= round && current < round + rounds,
      ),
    /** Applies the faults of a rank to bytes that the rank sends. Returns the bytes that arrive. */
    alter: (rank: number, bytes: Uint8Array) => {
      if (bytes.length === 0 || !corrupting.delete(rank)) return bytes
      const altered = bytes.slice()
      altered[0]! ^= 0xff
      return altered
    },
  }
}
