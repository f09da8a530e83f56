import { host, monotonicNow, seededRandom, tsrError } from '@tsrun/core'
import { Arena } from '../arena/arena.ts'
import { createMemory, heapOf } from '../arena/heap.ts'
import { Diagnosis } from '../diagnosis/diagnosis.ts'
import { Journal } from '../diagnosis/journal.ts'
import { quietDiagnosis } from '../diagnosis/settings.ts'
import { Engine } from '../engine/engine.ts'
import type { MessageListener } from '../engine/message-tap.ts'
import { MemoryNetwork, MemoryTransport } from '../transports/memory-transport.ts'
import type { RankEnd } from '../record/failed-world.ts'
import type { FlightDump } from '../record/flight-records.ts'
import type { Runner } from './runner.ts'
import { eventRunner } from './event-runner.ts'
import { WorldFaults, type FaultSource } from './world-faults.ts'

/** Milliseconds without progress after which the thread sleeps between polling rounds. */
const RESTLESS = 5
/** Milliseconds without progress after which the ranks may be in a deadlock. */
const PATIENCE = 500
/**
 * Milliseconds. While a deadline is nearer than this, the world waits for it instead of reporting a
 * deadlock.
 */
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
 * Runs the engines of all ranks in one thread. Ranks are connected by in-memory pipes, and a seeded
 * scheduler polls them.
 */
export class InProcessWorld {
  readonly runners: readonly Runner[]
  readonly #engines: Engine[]
  readonly #transports: readonly MemoryTransport[]
  readonly #faults: WorldFaults
  readonly #lost = new Set<number>()
  readonly #random: Random
  /** A number that changes whenever a program or an engine has made progress. */
  #activity = 0

  constructor({ size, seed, memory, hosts, faults, onMessage }: InProcessOptions) {
    this.#random = createRandom(seed)
    this.#faults = new WorldFaults(faults, size)
    const network = new MemoryNetwork(size, hosts)
    const ranks = Array.from({ length: size }, (_, rank) => {
      const heap = heapOf(createMemory(memory))
      const transport = new MemoryTransport(
        network,
        rank,
        size,
        heap,
        (bytes) => (this.#faults.isSlow(rank) ? 1 : this.#portion(bytes)),
        (bytes) => this.#faults.alter(rank, bytes),
      )
      const journal = new Journal({ rank, worldSize: size, settings: quietDiagnosis })
      const { shared } = journal
      const engine = new Engine({
        heap,
        rank,
        worldSize: size,
        transport,
        observe: (observed) => new Diagnosis(shared, observed),
        onMessage,
      })
      const runner = eventRunner({
        engine,
        arena: new Arena(heap, rank),
        journal,
        transport: transport.name,
        wake: () => {
          this.#activity++
        },
      })
      return { engine, runner, transport }
    })
    this.#engines = ranks.map(({ engine }) => engine)
    this.#transports = ranks.map(({ transport }) => transport)
    this.runners = ranks.map(({ runner }) => runner)
  }

  /** Drives the engines until all programs have settled. Returns their ends, in order of time. */
  async run(programs: readonly Promise<unknown>[]): Promise<RankEnd[]> {
    const ends: RankEnd[] = []
    for (const [rank, program] of programs.entries()) {
      const end = (facts: Pick<RankEnd, 'error'>): void => {
        ends.push({ rank, at: monotonicNow(), isLost: this.#lost.has(rank), ...facts })
        this.#activity++
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
      const before = this.#activity
      while (this.#progressOnce());
      await host.nextTurn()
      const nearest = Math.min(...this.#engines.map((engine) => engine.checkDeadlines(Infinity)))
      const now = monotonicNow()
      if (this.#activity !== before) lastActive = now
      if (now - lastActive < RESTLESS) continue
      await new Promise((resolve) => setTimeout(resolve, 1))
      if (now - lastActive < PATIENCE || nearest - now < FAR) continue
      for (const engine of this.#engines) engine.checkDeadlines(0)
      if (!this.#progressOnce()) this.#reportDeadlock(programs.length - ends.length)
    }
    return ends
  }

  /** Returns the flight record of each rank. */
  readFlight(): FlightDump[] {
    return this.runners.map(({ journal }) => journal.read('end of the world'))
  }

  #progressOnce(): boolean {
    this.#faults.begin({
      lose: (rank) => {
        this.#lost.add(rank)
        this.#transports[rank]!.close()
        const facts = { rank, operation: 'every operation', group: 'world' }
        this.#engines[rank]!.failAll(tsrError('ERR_TSR_OPERATION_ABORTED', facts))
      },
      halfClose: (rank, peer) => {
        this.#transports[rank]!.close(peer)
      },
    })
    let moved = this.#faults.isHoldingUp
    for (const engine of this.#shuffled()) {
      if (!this.#faults.isPaused(engine.rank) && engine.progress()) moved = true
    }
    if (moved) this.#activity++
    return moved
  }

  #shuffled(): Engine[] {
    const engines = [...this.#engines]
    for (let i = engines.length - 1; i > 0; i--) {
      const j = this.#random.below(i + 1)
      ;[engines[i], engines[j]] = [engines[j]!, engines[i]!]
    }
    return engines
  }

  /**
   * Returns how many of the available bytes to move: mostly all of them, sometimes a random part.
   */
  #portion(bytes: number): number {
    return this.#random.below(4) === 0 ? 1 + this.#random.below(bytes) : bytes
  }

  /** Fails all operations with a deadlock error if every unfinished rank waits for a message. */
  #reportDeadlock(unfinished: number): void {
    const waiting = this.#engines.filter((engine) => engine.hasRunning)
    if (waiting.length < unfinished || waiting.length === 0) return
    const lines = waiting.map((engine) => engine.describeWaiting()).join('; ')
    const error = tsrError('ERR_TSR_DEADLOCK', { waiting: lines })
    for (const engine of this.#engines) engine.failAll(error)
    this.#activity++
  }
}

export interface Random {
  /** Returns an integer from 0 to `limit` - 1. */
  below(limit: number): number
}

function createRandom(seed: number): Random {
  const random = seededRandom(seed)
  return { below: (limit) => Math.floor(random() * limit) }
}
