import { importOptional } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { Heap } from '../arena/heap.ts'
import type { BlockingTransport } from './transport.ts'

/** A transport that an optional package provides, with a launcher of its own. */
export interface TransportPlugIn {
  /** Joins the job of the launcher, on the main thread. */
  join(options: JobOptions): Promise<JoinedJob>
  /** Opens the transport on the engine's thread. All ranks must call it together. */
  open(heap: Heap, rank: number, worldSize: number): BlockingTransport
}

/** The facts about this process that the caller provides. */
export interface JobOptions {
  readonly rank?: number
  readonly worldSize?: number
  /** The store of the job. Default: a store that rank 0 hosts. */
  readonly store?: Store
  /** Time-out of the store in milliseconds. */
  readonly timeout?: number
}

/** A store, and the way to disconnect from it. */
export interface Rendezvous {
  readonly store: Store
  /** The address of this host from which the store was reached. */
  readonly from?: string | undefined
  /** Whether `close` ends the connection and thereby deletes its `whileConnected` keys. */
  readonly isOwn: boolean
  /**
   * Called on the main thread when the engine has connected.
   * @param heap - the bytes of the heap of the engine
   */
  onConnected?(heap: Uint8Array): void
  close(): Promise<void>
}

/** The place of this process in the job, and the store of the job. */
export interface JoinedJob extends Rendezvous {
  readonly place: { readonly rank: number; readonly worldSize: number }
}

/** Loads the transport of `@tsrun/<name>`. @throws ERR_TSR_PACKAGE_MISSING */
export async function loadPlugIn(name: 'mpi'): Promise<TransportPlugIn> {
  const packageName = `@tsrun/${name}`
  const load = async () => (await import(packageName)) as { transport: TransportPlugIn }
  return (await importOptional(`The transport ${name}`, packageName, load)).transport
}
