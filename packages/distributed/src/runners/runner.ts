import { tsrError, type TsrError } from '@tsrun/core'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { Arena } from '../arena/arena.ts'
import type { Journal } from '../diagnosis/journal.ts'
import type { Operation } from '../operation.ts'
import type { TicketDriver } from '../ticket.ts'
import type { ListenOptions } from '../transports/dialer.ts'
import type { StreamName } from './open-transport.ts'

/**
 * Runs the engine of a rank: in a worker thread, inline on the calling thread, or in one thread with
 * the engines of all other ranks.
 */
export interface Runner {
  readonly transport: string
  readonly arena: Arena
  readonly journal: Journal
  addGroup(id: number, name: string, ranks: readonly number[]): void
  removeGroup(id: number): void
  /** Fails the operations of a group on all of its ranks, and rejects later operations. */
  failGroup(id: number, reason: string): void
  /** Returns a word for each world rank: 0 while the rank is present, 1 once it has left or was lost. */
  gone(): Int32Array
  /** Returns the driver that starts an operation. @throws ERR_TSR_GROUP_DESTROYED */
  driverOf(operation: Operation): TicketDriver
  /** Whether `run` is faster than `start`, as `PersistentOperation.prefersRun` documents. */
  prefersCaller(operation: Operation): boolean
  /** Shuts down gracefully: delivers all sent data, then sends the peers a close frame. */
  close(): Promise<void>
}

/**
 * Returns the error for an operation that is pending, or is called, after the world was destroyed.
 */
export function destroyedError(operation: string): TsrError {
  return tsrError('ERR_TSR_GROUP_DESTROYED', { operation, group: 'world' })
}

export interface RunnerOptions {
  /** The WebAssembly memory that contains the heap, from `createMemory`. */
  readonly memory: WebAssembly.Memory
  readonly rank: number
  readonly worldSize: number
  /** The transport to the ranks that share no memory with this one. */
  readonly transport: StreamName
  readonly listen: ListenOptions
  readonly journal: Journal
  readonly tuning: TuningTable
}
