import { memoryStore } from '@tsrun/store'
import type { ProcessGroup } from '@tsrun/distributed'
import type { TuningTable } from '../../internals/distributed/algorithms.ts'
import { createArena, createMemory, heapOf, type Heap } from '../../internals/distributed/arena.ts'
import {
  diagnose,
  Journal,
  quietDiagnosis,
  createEngine,
  type Engine,
  createEngineDriver,
  type DiagnosisSettings,
} from '../../internals/distributed/engine.ts'
import { createWorldGroup } from '../../internals/distributed/groups.ts'
import {
  createNetwork,
  memoryTransport,
  type Transport,
} from '../../internals/distributed/transports.ts'
import { turns } from './outcome.ts'

export interface SteppedRank {
  readonly group: ProcessGroup
  readonly engine: Engine
  readonly transport: Transport
}

export interface SteppedOptions {
  /** Bytes of each rank's arena and engine memory. */
  readonly memory?: number
  /** Default: in memory. */
  readonly transport?: (rank: number, heap: Heap) => Transport
  readonly diagnosis?: Partial<DiagnosisSettings>
  /** By rank: which host; the ranks of one share memory. Default: none does. */
  readonly hosts?: readonly number[]
  readonly tuning?: TuningTable
  /** How many of the bytes that could move do move. Default: all. */
  readonly portion?: (bytes: number) => number
}

/** Milliseconds without movement after which a test is given up. */
const PATIENCE = 20_000

/**
 * A world whose ranks move only when the test says so, and whose engines are in sight. Operations
 * settle within `step`; their promises one turn of the event loop later.
 */
export class SteppedWorld {
  readonly ranks: SteppedRank[]
  /** In which the ranks agree on groups. */
  readonly store = memoryStore()

  constructor(size: number, options: SteppedOptions = {}) {
    const { memory = 16 * 1024 * 1024, transport: open, hosts, tuning } = options
    const { portion = (bytes: number) => bytes } = options
    const settings = { ...quietDiagnosis, ...options.diagnosis }
    const network = createNetwork(size, hosts)
    const { store } = this
    this.ranks = Array.from({ length: size }, (_, rank) => {
      const heap = heapOf(createMemory(memory))
      const transport = open?.(rank, heap) ?? memoryTransport(network, rank, size, heap, portion)
      const journal = new Journal({ rank, worldSize: size, settings })
      const shared = journal.shared
      const facts = { heap, rank, worldSize: size, transport }
      const engine = createEngine({
        ...facts,
        observe: (observed) => diagnose(shared, observed),
        tuning,
      })
      const driver = createEngineDriver(engine, {
        poll: () => undefined,
        block: () => {
          throw new Error('a stepped world cannot block')
        },
        attend: () => undefined,
      })
      const runner = {
        transport: transport.name,
        arena: createArena(heap, rank),
        journal,
        addGroup: engine.addGroup.bind(engine),
        removeGroup: engine.removeGroup.bind(engine),
        failGroup: engine.failGroup.bind(engine),
        gone: () => engine.gone,
        driverOf: () => driver,
        prefersCaller: () => false,
        close: async () => {
          engine.sayGoodbye()
          await Promise.resolve()
        },
      }
      const group = createWorldGroup({ rank, worldSize: size, runner, store, timeout: 600_000 })
      return { group, engine, transport }
    })
  }

  get groups(): ProcessGroup[] {
    return this.ranks.map(({ group }) => group)
  }

  /** Moves these ranks once. Returns whether anything moved. */
  step(ranks: readonly number[] = [...this.ranks.keys()]): boolean {
    let moved = false
    for (const rank of ranks) if (this.ranks[rank]!.engine.progress()) moved = true
    return moved
  }

  /** Moves these ranks until nothing moves. */
  drain(ranks?: readonly number[]): void {
    while (this.step(ranks));
  }

  /** Moves ranks until the works have settled; rejects with the first that failed. */
  async finish<T>(
    works: readonly (PromiseLike<T> | PromiseLike<number>)[],
    ranks?: readonly number[],
  ): Promise<(T | number)[]> {
    const state = { isSettled: false }
    const all = Promise.all<T | number>(works)
    const note = (): void => {
      state.isSettled = true
    }
    all.then(note, note)
    let lastMoved = performance.now()
    while (!state.isSettled) {
      if (this.step(ranks)) lastMoved = performance.now()
      if (performance.now() - lastMoved > PATIENCE)
        throw new Error('the stepped world stands still')
      await turns(1)
    }
    return await all
  }

  /** The error of each work, or undefined. */
  async outcomes(works: readonly PromiseLike<unknown>[]): Promise<unknown[]> {
    return await this.finish(
      works.map((work) =>
        work.then(
          () => undefined,
          (error: unknown) => error,
        ),
      ),
    )
  }
}
