import { tsrError, type TsrError } from '@tsrun/core'
import type { Ladders } from '../algorithms/ladders.ts'
import type { Arena } from '../arena/arena.ts'
import type { Journal } from '../diagnosis/journal.ts'
import type { Operation } from '../operation.ts'
import type { Ticket } from '../ticket.ts'
import type { ListenOptions } from '../transports/listen.ts'
import type { StreamName } from './open-transport.ts'

/**
 * Where an engine runs: in a worker thread, inline on the caller's thread, or with the engines of
 * all other ranks in one thread (tests). One host a rank.
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
  /** By world rank: not 0 when it has left or was lost. */
  readonly gone: Int32Array
  submit(operation: Operation): Ticket
  /** Leaves in order: what was sent still arrives, then the peers are told. */
  close(): Promise<void>
}

/** The world was destroyed, and with it the engine of all its groups. */
export function destroyedError(operation: string): TsrError {
  return tsrError('ERR_TSR_GROUP_DESTROYED', { operation, group: 'world' })
}

export interface RunnerOptions {
  /** Of the heap; see `createMemory`. */
  readonly memory: WebAssembly.Memory
  readonly rank: number
  readonly worldSize: number
  /** How streams to ranks that share no memory are carried. */
  readonly transport: StreamName
  readonly listen: ListenOptions
  readonly journal: Journal
  readonly ladders: Ladders
}
