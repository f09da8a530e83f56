import { monotonicNow, refuseUnknown, tsrError } from '@tsrun/core'
import { memoryStore } from '@tsrun/store'
import { Arena } from '../arena/arena.ts'
import { createMemory, heapOf } from '../arena/heap.ts'
import { Journal } from '../diagnosis/journal.ts'
import { quietDiagnosis } from '../diagnosis/settings.ts'
import { Engine } from '../engine/engine.ts'
import type { Operation } from '../engine/operation.ts'
import { createWorldGroup } from '../groups/world-group.ts'
import type { ProcessGroup } from '../process-group.ts'
import { MemoryNetwork, MemoryTransport } from '../transports/memory/memory-transport.ts'
import { destroyedError, type EngineHost, type Ticket } from './host.ts'
import { createRandom, type Random } from './random.ts'
import { TaskTicket } from './task-ticket.ts'

export interface WorldOptions {
  /** Number of ranks. */
  readonly size: number
  /** Chooses the interleaving: the same seed gives the same run. Default 0. */
  readonly seed?: number
  /** Default time-out of operations in milliseconds; default 10 minutes. */
  readonly timeout?: number
  /** Bytes of each rank's arena and engine memory; default 64 MiB. */
  readonly memory?: number
  /**
   * By rank: which host it is on; between ranks of one host large messages are copied straight from
   * heap to heap. Default: each on a host of its own.
   */
  readonly hosts?: readonly number[]
}

/** Milliseconds without progress after which the thread rests between its looks. */
const RESTLESS = 5
/** Milliseconds without progress after which the world may be said to stand still. */
const PATIENCE = 500
/** A time-out that is nearer than this, in milliseconds, ends the wait anyway. */
const FAR = 60_000

/**
 * Runs `program` as every rank of a world within this thread, over in-memory transports with a
 * seeded scheduler; resolves to the ranks' results. For tests, and to try a parallel program without
 * processes. Only the asynchronous calls work.
 *
 * @example
 * const sums = await runWorld({ size: 4, seed: 1 }, async (group) => {
 *   const buffer = Float32Array.of(group.rank)
 *   await group.allReduce(buffer)
 *   return buffer[0] // 6 on every rank
 * })
 *
 * @throws what the first failing program throws; ERR_TSR_DEADLOCK when all ranks wait for good;
 *   ERR_TSR_ARGUMENT
 */
export async function runWorld<T>(
  options: WorldOptions,
  program: (group: ProcessGroup) => Promise<T>,
): Promise<T[]> {
  checkOptions(options)
  const world = new World(options)
  const programs = world.groups.map((group) => program(group))
  return await world.run(programs)
}

const KNOWN = Object.keys({
  size: true,
  seed: true,
  timeout: true,
  memory: true,
  hosts: true,
} satisfies Record<keyof WorldOptions, true>)

function checkOptions(options: WorldOptions): void {
  refuseUnknown(options, KNOWN)
  const { size } = options
  if (Number.isSafeInteger(size) && size >= 1) return
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'size', value: size, expected: 'a number of ranks' })
}

class World {
  readonly groups: ProcessGroup[]
  readonly #engines: Engine[]
  readonly #random: Random
  #activity = 0

  constructor({
    size,
    seed = 0,
    timeout = 600_000,
    memory = 64 * 1024 * 1024,
    hosts: hostOfRank,
  }: WorldOptions) {
    this.#random = createRandom(seed)
    const network = new MemoryNetwork(size, hostOfRank)
    const store = memoryStore()
    const portion = (bytes: number): number => this.#portion(bytes)
    const hosts = Array.from({ length: size }, (_, rank) => {
      const heap = heapOf(createMemory(memory))
      const transport = new MemoryTransport(network, rank, size, heap, portion)
      const journal = new Journal({ rank, worldSize: size, settings: quietDiagnosis })
      const shared = journal.shared
      const engine = new Engine({ heap, rank, worldSize: size, transport, journal: shared })
      return { engine, host: this.#createHost(engine, new Arena(heap, rank), journal, transport) }
    })
    this.#engines = hosts.map(({ engine }) => engine)
    this.groups = hosts.map(({ host }, rank) =>
      createWorldGroup({ rank, worldSize: size, host, store, timeout }),
    )
  }

  /** Drives the engines until all programs have settled. */
  async run<T>(programs: readonly Promise<T>[]): Promise<T[]> {
    let settled = 0
    for (const program of programs) {
      const count = (): void => {
        settled++
        this.#activity++
      }
      program.then(count, count)
    }
    const all = Promise.all(programs)
    all.catch(() => undefined)
    let lastActive = monotonicNow()
    while (settled < programs.length) {
      const before = this.#activity
      while (this.#progressOnce());
      await new Promise((resolve) => setImmediate(resolve))
      const nearest = Math.min(...this.#engines.map((engine) => engine.checkDeadlines(Infinity)))
      const now = monotonicNow()
      if (this.#activity !== before) lastActive = now
      if (now - lastActive < RESTLESS) continue
      await new Promise((resolve) => setTimeout(resolve, 1))
      if (now - lastActive < PATIENCE || nearest - now < FAR) continue
      for (const engine of this.#engines) engine.checkDeadlines(0)
      if (!this.#progressOnce()) this.#reportDeadlock(programs.length - settled)
    }
    return await all
  }

  #progressOnce(): boolean {
    let moved = false
    for (const engine of this.#shuffled()) {
      if (engine.progress()) moved = true
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

  /** Most streams move whole; some break at any byte. */
  #portion(bytes: number): number {
    return this.#random.below(4) === 0 ? 1 + this.#random.below(bytes) : bytes
  }

  /** Fails everything when every rank that has not finished waits for a message. */
  #reportDeadlock(unfinished: number): void {
    const waiting = this.#engines.filter((engine) => engine.hasRunning)
    if (waiting.length < unfinished || waiting.length === 0) return
    const lines = waiting.map((engine) => engine.describeWaiting()).join('; ')
    const error = tsrError('ERR_TSR_DEADLOCK', { waiting: lines })
    for (const engine of this.#engines) engine.failAll(error)
    this.#activity++
  }

  #createHost(
    engine: Engine,
    arena: Arena,
    journal: Journal,
    transport: MemoryTransport,
  ): EngineHost {
    const submit = (operation: Operation): Ticket => {
      this.#activity++
      return new TaskTicket(engine, operation, {
        poll: () => undefined,
        block: (_, name) => {
          throw tsrError('ERR_TSR_SYNC_UNSUPPORTED', { operation: name, engine: 'world' })
        },
        attend: () => undefined,
      })
    }
    return {
      kind: 'world',
      transport: transport.name,
      arena,
      journal,
      addGroup: (id, name, ranks) => {
        engine.addGroup(id, name, ranks)
      },
      removeGroup: (id) => {
        engine.removeGroup(id)
      },
      failGroup: (id, reason) => {
        engine.failGroup(id, reason)
        this.#activity++
      },
      gone: engine.gone,
      submit,
      close: async () => {
        engine.sayGoodbye()
        engine.failAll(destroyedError('An operation'))
        this.#activity++
        await Promise.resolve()
      },
    }
  }
}
