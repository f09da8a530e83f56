import {
  runWorld,
  type AlgorithmName,
  type MessageEvent,
  type ProcessGroup,
} from '@tsrun/distributed'

/** The collectives of the page, by their names in the API. */
export const collectives = {
  allReduce: 'all-reduce',
  reduceScatter: 'reduce-scatter',
  allGather: 'all-gather',
  allToAll: 'all-to-all',
  reduce: 'reduce to rank 0',
  broadcast: 'broadcast from rank 0',
} as const

export type CollectiveName = keyof typeof collectives

/** Elements of a chunk: each rank has a buffer with one chunk per rank. Smaller buffers are not cut. */
const CHUNK = 4096
export const CHUNK_BYTES = CHUNK * Float32Array.BYTES_PER_ELEMENT

/**
 * What the buffers of all ranks contain: for each rank, a number for each chunk. A rank contributes
 * 10 ** rank, so the decimal digits say who has contributed to a chunk.
 */
export type Contents = readonly (readonly number[])[]

export interface RecordedCollective {
  readonly ranks: number
  readonly events: readonly MessageEvent[]
  /** The contents before each event, and after the last one. */
  readonly contents: readonly Contents[]
}

/** What a rank records of a collective. */
export interface RankRecord {
  readonly events: readonly TimedEvent[]
  /** The chunks of its buffer: at the beginning, and after each of its events. */
  readonly chunks: readonly (readonly number[])[]
}

interface TimedEvent extends MessageEvent {
  readonly time: number
}

/** Registers a listener for each message of this rank. */
export type Listen = (onMessage: (event: MessageEvent) => void) => void

/** Runs a collective on all ranks of a world in this thread, and records each message and its effect. */
export async function recordCollective(
  name: CollectiveName,
  algorithm: AlgorithmName,
  ranks: number,
): Promise<RecordedCollective> {
  const listeners: Parameters<Listen>[0][] = []
  const onMessage = (event: MessageEvent): void => {
    listeners[event.rank]?.(event)
  }
  let now = 0
  const records = await runWorld(
    { size: ranks, seed: 1, memory: 8 << 20, onMessage },
    async (group) =>
      await recordRank(
        group,
        { name, algorithm },
        (listener) => {
          listeners[group.rank] = listener
        },
        () => now++,
      ),
  )
  return mergeRecords(records)
}

/**
 * The program of a rank that runs a collective.
 *
 * @param clock - returns a time that all ranks share
 */
export async function recordRank(
  group: ProcessGroup,
  { name, algorithm }: { readonly name: CollectiveName; readonly algorithm: AlgorithmName },
  listen: Listen,
  clock: () => number,
): Promise<RankRecord> {
  const { chunks, run } = prepare(name, group)
  const events: TimedEvent[] = []
  const seen = [chunks()]
  listen((event) => {
    if (event.operation !== name) return
    // Record the effect of an event when the rank sends or receives again.
    if (events.length > 0) seen.push(chunks())
    events.push({ ...event, time: clock() })
  })
  // Start all ranks together.
  await group.barrier()
  await run(algorithm)
  seen.push(chunks())
  return { events, chunks: seen }
}

/** Sorts the events of all ranks by time, with each send before its receive. */
export function mergeRecords(records: readonly RankRecord[]): RecordedCollective {
  const done = records.map(() => 0)
  const sent = new Set<string>()
  const events: MessageEvent[] = []
  const contents: Contents[] = []
  const canFollow = ({ kind, rank, peer, step }: MessageEvent): boolean =>
    kind === 'sent' || sent.has(`${peer} ${rank} ${step}`)
  for (;;) {
    contents.push(records.map(({ chunks }, rank) => chunks[done[rank]!]!))
    const next = records
      .flatMap((record, rank) => record.events[done[rank]!] ?? [])
      .filter((event) => canFollow(event))
      .sort((a, b) => a.time - b.time)[0]
    if (next === undefined) return { ranks: records.length, events, contents }
    const { kind, rank, peer, step } = next
    if (kind === 'sent') sent.add(`${rank} ${peer} ${step}`)
    done[rank]!++
    events.push(next)
  }
}

interface Prepared {
  readonly chunks: () => number[]
  readonly run: (algorithm: AlgorithmName) => PromiseLike<void>
}

function prepare(name: CollectiveName, group: ProcessGroup): Prepared {
  const { rank, size } = group
  const own = 10 ** rank
  const buffer = group.alloc('float32', size * CHUNK)
  const firstOf = (values: Float32Array): number[] =>
    Array.from({ length: size }, (_, chunk) => values[chunk * CHUNK]!)
  const chunks = (): number[] => firstOf(buffer)
  switch (name) {
    case 'allReduce':
      buffer.fill(own)
      return { chunks, run: (algorithm) => group.allReduce(buffer, { algorithm }) }
    case 'reduce':
      buffer.fill(own)
      return { chunks, run: (algorithm) => group.reduce(buffer, 0, { algorithm }) }
    case 'broadcast':
      if (rank === 0) buffer.fill(own)
      return { chunks, run: (algorithm) => group.broadcast(buffer, 0, { algorithm }) }
    case 'allGather': {
      const input = group.alloc('float32', CHUNK).fill(own)
      buffer.fill(own, rank * CHUNK, (rank + 1) * CHUNK)
      return { chunks, run: (algorithm) => group.allGather(buffer, input, { algorithm }) }
    }
    case 'allToAll': {
      const output = group.alloc('float32', size * CHUNK)
      buffer.fill(own)
      return {
        chunks: () => firstOf(output),
        run: (algorithm) => group.allToAll(output, buffer, { algorithm }),
      }
    }
    case 'reduceScatter': {
      const output = group.alloc('float32', CHUNK)
      buffer.fill(own)
      const summed = (): number[] =>
        firstOf(buffer).map((value, chunk) => {
          const sum = output[0]!
          return chunk === rank && sum > 0 ? sum : value
        })
      return {
        chunks: summed,
        run: (algorithm) => group.reduceScatter(output, buffer, { algorithm }),
      }
    }
  }
}

/** The figures of a link. Milliseconds for each message, and gigabytes (10^9 bytes) per second. */
export interface LinkCosts {
  readonly latency: number
  readonly bandwidth: number
}

/** Milliseconds that the bytes of a message take, without the latency. */
export function bytesTime(bytes: number, { bandwidth }: LinkCosts): number {
  return bytes / (bandwidth * 1e6)
}

/** A message on the simulated clock, in milliseconds. */
export interface TimedMessage {
  readonly from: number
  readonly to: number
  readonly bytes: number
  readonly start: number
  readonly arrival: number
}

/**
 * Puts messages on the clock of a network with these links (the alpha-beta model): a rank sends one
 * message at a time, and continues when what it waits for has arrived.
 */
export function timeMessages(
  { events, ranks }: Pick<RecordedCollective, 'events' | 'ranks'>,
  costs: LinkCosts,
): TimedMessage[] {
  const now = new Array<number>(ranks).fill(0)
  const free = new Array<number>(ranks).fill(0)
  const arrivals = new Map<string, number>()
  const messages: TimedMessage[] = []
  for (const { kind, rank, peer, step, bytes } of events) {
    if (kind === 'received') {
      now[rank] = Math.max(now[rank]!, arrivals.get(`${peer}-${rank}-${step}`) ?? 0)
      continue
    }
    const start = Math.max(now[rank]!, free[rank]!)
    const sent = start + bytesTime(bytes, costs)
    const arrival = sent + costs.latency
    free[rank] = sent
    arrivals.set(`${rank}-${peer}-${step}`, arrival)
    messages.push({ from: rank, to: peer, bytes, start, arrival })
  }
  return messages
}

/** What theory says of an algorithm: the number of latencies, and how often the buffer is sent. */
export interface Theory {
  readonly latencies: string
  readonly bytes: string
  /** Milliseconds. */
  readonly time: number
}

/** @param bytes - of the whole buffer */
export function theoryOf(
  name: CollectiveName,
  algorithm: AlgorithmName,
  ranks: number,
  bytes: number,
  costs: LinkCosts,
): Theory | undefined {
  const isPower = Number.isInteger(Math.log2(ranks))
  const rounds = Math.ceil(Math.log2(ranks))
  const theory = (
    latencies: [text: string, count: number],
    share: [text: string, factor: number],
  ): Theory => ({
    latencies: latencies[0],
    bytes: share[0],
    time: latencies[1] * costs.latency + share[1] * bytesTime(bytes, costs),
  })
  const steps: [string, number] = ['n−1', ranks - 1]
  const tree: [string, number] = ['⌈log₂ n⌉', rounds]
  const part: [string, number] = ['(n−1)/n', (ranks - 1) / ranks]
  const twice: [string, number] = ['2(n−1)/n', (2 * (ranks - 1)) / ranks]
  switch (`${name} ${algorithm}`) {
    case 'allReduce ring':
      return theory(['2(n−1)', 2 * (ranks - 1)], twice)
    case 'allReduce recursive-doubling':
      return isPower ? theory(tree, ['log₂ n', rounds]) : undefined
    case 'allReduce halving-doubling':
      return isPower ? theory(['2 log₂ n', 2 * rounds], twice) : undefined
    case 'reduceScatter ring':
    case 'allGather ring':
      return theory(steps, part)
    case 'allToAll pairwise':
      // No message waits for another one.
      return theory(['1', 1], part)
    case 'reduceScatter recursive-halving':
      return isPower ? theory(tree, part) : undefined
    case 'allGather bruck':
      return theory(tree, part)
    case 'broadcast binomial-tree':
    case 'reduce binomial-tree':
      return theory(tree, ['⌈log₂ n⌉', rounds])
    default:
      return undefined
  }
}
