import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { count, object, parseJson, text, tsrError, type Of } from '@tsrun/core'
import { connectStore, reachableAddress, type Store } from '@tsrun/store'

/** The address of the store on rank 0, and the secret of the job. */
const storeAddress = object({ host: text, port: count(), token: text })

export interface StoreOptions {
  readonly isHost: boolean
  /** Whether all ranks are on this host. */
  readonly isOneHost: boolean
  readonly iface: string | undefined
  readonly timeout: number | undefined
  /** Broadcasts the text of rank 0, which hosts the store. Returns the text on all ranks. */
  readonly broadcast: (text: string) => string
}

/**
 * Opens the store of a job whose ranks can broadcast the address of the store. All ranks must call
 * it together.
 */
export async function openSharedStore(
  options: StoreOptions,
): Promise<{ store: Store; close: () => Promise<void> }> {
  const { isHost, isOneHost, iface, timeout, broadcast } = options
  const hosted = isHost
    ? await hostStore(
        isOneHost ? '127.0.0.1' : await reachableAddress(iface ?? process.env['TSRUN_IFACE']),
      )
    : undefined
  const json = broadcast(JSON.stringify(hosted?.address ?? null))
  const told = parseJson(json, storeAddress)
  if (told === undefined) {
    const reason = 'it is not the address of a store; do all ranks run the same version of tsrun?'
    throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: Buffer.byteLength(json), reason })
  }
  const store = await connectStore({ ...told, timeout })
  return {
    store,
    close: async () => {
      await store.close()
      await hosted?.close()
    },
  }
}

async function hostStore(
  host: string,
): Promise<{ readonly address: Of<typeof storeAddress>; close(): Promise<void> }> {
  const token = randomBytes(32).toString('hex')
  // This module is one level below the folder of the package, in src as in dist.
  const entry = new URL('../dist/store-thread.js', import.meta.url)
  const thread = new Worker(entry, { workerData: { host, token }, execArgv: [] })
  const [port] = (await once(thread, 'message')) as [number]
  thread.unref()
  return {
    address: { host, port, token },
    close: async () => {
      thread.ref()
      const ended = once(thread, 'exit')
      thread.postMessage('close')
      await ended
    },
  }
}
