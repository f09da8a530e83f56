import { host, monotonicNow, seededRandom, tsrError } from '@tsrun/core'
import { createMemory, heapOf } from '../arena/heap.ts'
import type { Engine } from '../engine/engine.ts'
import type { MessageListener } from '../engine/message-tap.ts'
import { createNetwork, memoryTransport } from '../transports/memory-transport.ts'
import { createEventRunner } from './event-runner.ts'
import type { RankEnd } from '../record/flight-records.ts'
import { worldFaults, type FaultSource } from './world-faults.ts'

/** Milliseconds without progress after which the thread sleeps between polling rounds. */
const RESTLESS = 5
/** Milliseconds without progress after which the ranks may be in a deadlock. */
const PATIENCE = 500
/** Milliseconds. If a deadline is nearer than this, the world waits for it instead of failing. */
const FAR = 60_000

export interface InProcessOptions {
  readonly size: number
  /** Seed for the order in which ranks run. The same seed gives the same run. */
  readonly seed: number
  /** Bytes of each rank's arena and engine memory. */
  readonly memory: number
  /** The host number of each rank; undefined: each rank is on a separate host. */
  readonly hosts: readonly number[] | undefined
  readonly faults: FaultSource
  readonly onMessage: MessageListener | undefined
}

/**
 * Creates the engines of all ranks in one thread. Ranks are connected by in-memory pipes, and a seeded
 * scheduler polls them.
 */
export function inProcessWorld(options: InProcessOptions) {
  const { size, seed, memory, hosts, onMessage } = options
  const random = seededRandom(seed)
  /** Returns an integer from 0 to `limit` - 1. */
  const below = (limit: number): number => Math.floor(random() * limit)
  const faults = worldFaults(options.faults, size)
  const network = createNetwork(size, hosts)
  const lost = new Set<number>()
  /** A number that changes whenever a program or an engine has made progress. */
  let activity = 0
  const wake = (): void => {
    activity++
  }

  /** Returns how many of the available bytes to move: mostly all of them, sometimes a random part. */
  const portion = (rank: number, bytes: number): number => {
    if (faults.lasts('slow', rank)) return 1
    return below(4) === 0 ? 1 + below(bytes) : bytes
  }
  const ranks = Array.from({ length: size }, (_, rank) => {
    const heap = heapOf(createMemory(memory))
    const transport = memoryTransport(
      network,
      rank,
      size,
      heap,
      (bytes) => portion(rank, bytes),
      (bytes) => faults.alter(rank, bytes),
    )
    const facts = { heap, rank, worldSize: size, transport, onMessage, wake }
    return { ...createEventRunner(facts), transport }
  })
  const engines = ranks.map(({ engine }) => engine)

  const shuffled = (): Engine[] => {
    const order = [...engines]
    for (let i = order.length - 1; i > 0; i--) {
      const j = below(i + 1)
      ;[order[i], order[j]] = [order[j]!, order[i]!]
    }
    return order
  }

  const progressOnce = (): boolean => {
    for (const { kind, rank, peer } of faults.begin()) {
      const { engine, transport } = ranks[rank]!
      if (kind === 'lose' || kind === 'half-close') transport.close(peer)
      if (kind !== 'lose') continue
      lost.add(rank)
      const facts = { rank, operation: 'every operation', group: 'world' }
      engine.failAll(tsrError('ERR_TSR_OPERATION_ABORTED', facts))
    }
    // Rounds continue while a rank is paused, even if no data moves.
    let moved = faults.lasts('pause')
    for (const engine of shuffled()) {
      if (!faults.lasts('pause', engine.rank) && engine.progress()) moved = true
    }
    if (moved) wake()
    return moved
  }

  /** Fails all operations with a deadlock error if every unfinished rank waits for a message. */
  const reportDeadlock = (unfinished: number): void => {
    const waiting = engines.filter((engine) => engine.hasRunning())
    if (waiting.length < unfinished || waiting.length === 0) return
    const lines = waiting.map((engine) => engine.describeWaiting()).join('; ')
    const error = tsrError('ERR_TSR_DEADLOCK', { waiting: lines })
    for (const engine of engines) engine.failAll(error)
    wake()
  }

  return {
    runners: ranks.map(({ runner }) => runner),
    /** Drives the engines until all programs have settled. Returns their outcomes in order of time. */
    run: async (programs: readonly Promise<unknown>[]): Promise<RankEnd[]> => {
      const ends: RankEnd[] = []
      for (const [rank, program] of programs.entries()) {
        const end = (facts: Pick<RankEnd, 'error'>): void => {
          ends.push({ rank, at: monotonicNow(), isLost: lost.has(rank), ...facts })
          wake()
        }
        program.then(
          () => {
            end({})
          },
          (error: unknown) => {
            end({ error })
          },
        )
      }
      let lastActive = monotonicNow()
      while (ends.length < programs.length) {
        const before = activity
        while (progressOnce());
        await host.nextTurn()
        const nearest = Math.min(...engines.map((engine) => engine.checkDeadlines(Infinity)))
        const now = monotonicNow()
        if (activity !== before) lastActive = now
        if (now - lastActive < RESTLESS) continue
        await new Promise((resolve) => setTimeout(resolve, 1))
        if (now - lastActive < PATIENCE || nearest - now < FAR) continue
        for (const engine of engines) engine.checkDeadlines(0)
        if (!progressOnce()) reportDeadlock(programs.length - ends.length)
      }
      return ends
    },
  }
}
