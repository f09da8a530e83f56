import type { Ladders } from '../algorithms/ladders.ts'
import type { Heap } from '../arena/heap.ts'
import type { Transport } from '../transports/transport.ts'
import type { EngineObserver, ObservedEngine } from './observer.ts'

export interface EngineOptions {
  readonly heap: Heap
  /** Rank in the world. */
  readonly rank: number
  readonly worldSize: number
  /** Undefined for a world of one. */
  readonly transport: Transport | undefined
  /** Makes the observer of this engine. */
  readonly observe: (engine: ObservedEngine) => EngineObserver
  /** Chooses algorithms; the same on all ranks. Default: the built-in thresholds. */
  readonly ladders?: Ladders | undefined
  /** By world rank: 0 while it is there; written by the engine, read by any thread that has it. */
  readonly gone?: Int32Array
}
