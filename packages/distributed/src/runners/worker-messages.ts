import type { MessagePort } from 'node:worker_threads'
import type { SerializedTsrError } from '@tsrun/core'
import type { SharedJournal } from '../diagnosis/journal.ts'
import type { Endpoint } from '../transports/dialer.ts'
import type { MappedHeap } from '../transports/transport.ts'
import type { ConnectOptions } from './open-transport.ts'
import type { RunnerOptions } from './runner.ts'
import type { SharedState } from './worker-memory.ts'

/** The `workerData` of the engine's thread. */
export interface WorkerInput extends Omit<RunnerOptions, 'journal'> {
  readonly shared: SharedState
  /** The port for errors of operations, and for groups to add, to fail or to remove. */
  readonly port: MessagePort
  readonly journal: SharedJournal
  /** `EngineOptions.gone` in shared memory: 0 for each world rank that is present. */
  readonly gone: Int32Array
  /** Memory for the epochs of groups; `EngineOptions.epochs` in shared memory. */
  readonly epochs: Int32Array
}

/** Messages from the main thread to the worker during start-up. */
export type StartCommand =
  | { readonly connect: ConnectOptions }
  /** Asks the worker to stop connecting. */
  | { readonly cancel: true }

/** Messages from the worker to the main thread during start-up. */
export type StartMessage =
  | { readonly listening: Endpoint }
  | { readonly ready: ReadyMessage }
  | { readonly failed: SerializedTsrError }

export interface ReadyMessage {
  /** The bell that wakes the worker; undefined if JavaScript messages wake it. */
  readonly doorbell: number | undefined
  /** A path in /proc that exists as long as the thread does; undefined if there is no /proc. */
  readonly thread: string | undefined
  /** The mapped heap of each rank that shares memory with this one. */
  readonly heaps: readonly (MappedHeap | undefined)[] | undefined
}

/** Value of `slot` in a message about a failure of the engine itself. */
export const ENGINE = -1

/**
 * A message from the worker to the main thread. It is sent before the state of the slot becomes
 * `failed`.
 */
export interface FailureMessage {
  readonly slot: number
  readonly error: SerializedTsrError
}

/**
 * A message from the main thread to the worker, which adds, fails or removes a group. It is sent
 * before the command `changeGroup`.
 */
export type GroupMessage =
  | { readonly id: number; readonly name: string; readonly ranks: readonly number[] }
  | { readonly id: number; readonly reason: string }
  | { readonly id: number }
