import type { MessagePort } from 'node:worker_threads'
import type { SerializedTsrError } from '@tsrun/core'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { SharedJournal } from '../diagnosis/journal.ts'
import type { ListenOptions } from '../transports/dialer.ts'
import type { Endpoint } from '../transports/dialer.ts'
import type { MappedHeap } from '../transports/transport.ts'
import type { ConnectOptions, StreamName } from './open-transport.ts'

/** The `workerData` of the engine's thread. */
export interface WorkerInput {
  readonly memory: WebAssembly.Memory
  readonly shared: SharedArrayBuffer
  /** Carries errors of operations, and groups to add or fail. */
  readonly port: MessagePort
  readonly rank: number
  readonly worldSize: number
  readonly transport: StreamName
  readonly listen: ListenOptions
  readonly journal: SharedJournal
  readonly tuning: TuningTable
  /** See `EngineOptions`; in shared memory. */
  readonly gone: Int32Array
  /** See `EngineOptions`. */
  readonly epochs: Int32Array
}

/** Main thread to worker, during start-up. */
export type StartCommand =
  | { readonly connect: ConnectOptions }
  /** Cancels connecting. */
  | { readonly cancel: true }

/** Worker to main thread, during start-up. */
export type StartMessage =
  | { readonly listening: Endpoint }
  | { readonly ready: ReadyMessage }
  | { readonly failed: SerializedTsrError }

export interface ReadyMessage {
  /** The eventfd that wakes the worker; undefined if messages wake it. */
  readonly doorbell: number | undefined
  /** A path in /proc that exists as long as the thread does; undefined if there is no /proc. */
  readonly thread: string | undefined
  /** See `BlockingTransport`. */
  readonly heaps: readonly (MappedHeap | undefined)[] | undefined
}

/** The `slot` of a message about a failure of the engine itself. */
export const ENGINE = -1

/** Worker to main thread on the port, before the slot's state becomes `failed`. */
export interface FailureMessage {
  readonly slot: number
  readonly error: SerializedTsrError
}

/** Main thread to worker on the port, before the command `addGroup`. */
export interface GroupMessage {
  readonly id: number
  readonly name: string
  readonly ranks: readonly number[]
}

/** Main thread to worker on the port, before the command `failGroup`. */
export interface GroupFailureMessage {
  readonly id: number
  readonly reason: string
}
