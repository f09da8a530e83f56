import { tsrError, type TsrError } from '@tsrun/core'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { Arena } from '../arena/arena.ts'
import type { Journal } from '../diagnosis/journal.ts'
import type { Operation } from '../operation.ts'
import type { TicketDriver } from '../ticket.ts'
import type { ListenOptions } from '../transports/dialer.ts'
import type { StreamName } from './open-transport.ts'

/**
 * Where the engine of a rank runs: in a worker thread, inline on the caller's thread, or with the
 * engines of all other ranks in one thread.
 */
export interface Runner {
  readonly kind: 'worker' | 'inline' | 'world'
  readonly transport: string
  readonly arena: Arena
  readonly journal: Journal
  addGroup(id: number, name: string, ranks: readonly number[]): void
  removeGroup(id: number): void
  /** Ends what runs on the group, on all of its ranks, and refuses what is called later. */
  failGroup(id: number, reason: string): void
  /** By world rank: 0 while the rank is there, 1 when it has left or was lost. */
  readonly gone: Int32Array
  /**
   * What runs an operation: the engine, or the caller's thread.
   *
   * @param isAwaited - the caller is going to block until it is settled, before it does anything else
   * @throws ERR_TSR_GROUP_DESTROYED
   */
  driverOf(operation: Operation, isAwaited: boolean): TicketDriver
  /** See `PersistentOperation.prefersRun`. */
  prefersCaller(operation: Operation): boolean
  /** Leaves in order: what was sent still arrives, and the peers are told afterwards. */
  close(): Promise<void>
}

/** The world was destroyed, and with it the engine of all its groups. */
export function destroyedError(operation: string): TsrError {
  return tsrError('ERR_TSR_GROUP_DESTROYED', { operation, group: 'world' })
}

/** What a runner is started with. */
export interface RunnerOptions {
  /** The memory of the heap; see `createMemory`. */
  readonly memory: WebAssembly.Memory
  readonly rank: number
  readonly worldSize: number
  /** How streams to ranks that share no memory are carried. */
  readonly transport: StreamName
  readonly listen: ListenOptions
  readonly journal: Journal
  readonly tuning: TuningTable
}
