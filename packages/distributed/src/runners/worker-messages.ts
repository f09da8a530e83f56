import type { MessagePort } from 'node:worker_threads'
import type { SerializedTsrError } from '@tsrun/core'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { SharedJournal } from '../diagnosis/journal.ts'
import type { ListenOptions } from '../transports/dialer.ts'
import type { Endpoint } from '../transports/dialer.ts'
import type { MappedHeap } from '../transports/transport.ts'
import type { ConnectOptions, StreamName } from './open-transport.ts'

/** What the worker starts with. */
export interface WorkerInput {
  readonly memory: WebAssembly.Memory
  readonly shared: SharedArrayBuffer
  /** Errors of operations, and groups to add. */
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

/** Main to worker, while it starts. */
export type StartCommand =
  | { readonly connect: ConnectOptions }
  /** The main thread has given up joining. */
  | { readonly cancel: true }

/** Worker to main, while it starts. */
export type StartMessage =
  | { readonly listening: Endpoint }
  | { readonly ready: ReadyMessage }
  | { readonly failed: SerializedTsrError }

export interface ReadyMessage {
  /** The eventfd that wakes the worker; undefined when a message does. */
  readonly doorbell: number | undefined
  /** Where Linux shows its thread. */
  readonly thread: string | undefined
  /** See `BlockingTransport`. */
  readonly heaps: readonly (MappedHeap | undefined)[] | undefined
}

/** In place of a slot: the engine itself has failed. */
export const ENGINE = -1

/** Worker to main through the port, before the slot's state says `failed`. */
export interface FailureMessage {
  readonly slot: number
  readonly error: SerializedTsrError
}

/** Main to worker through the port, before the command that names it. */
export interface GroupMessage {
  readonly id: number
  readonly name: string
  readonly ranks: readonly number[]
}

/** Main to worker through the port, before the command that names it. */
export interface GroupFailureMessage {
  readonly id: number
  readonly reason: string
}
