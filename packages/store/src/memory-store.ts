import { declareOptions } from '@tsrun/core'
import { durationRule } from './arguments.ts'
import { linkedStore } from './calls.ts'
import { createStoreData, type StoreData } from './data.ts'
import { createSession } from './session.ts'
import type { Store } from './store.ts'

/** Default time-out of calls in milliseconds. */
export const DEFAULT_TIMEOUT = 300_000

/** Options of `memoryStore`. */
export interface MemoryStoreOptions {
  /** Default time-out of calls in milliseconds. Default: 300 000. */
  readonly timeout?: number
}

const readOptions = declareOptions({ timeout: durationRule.default(DEFAULT_TIMEOUT) })

/**
 * Creates a store within this process, for a world of one and for tests.
 *
 * @example
 * const store = memoryStore()
 * await store.set('greeting', 'hello')
 */
export function memoryStore(options: MemoryStoreOptions = {}): Store {
  return localStore(createStoreData(), 'memory', readOptions(options).timeout).store
}

/**
 * Creates a store over data of this process. The returned `lost` ends all calls, like a lost
 * connection.
 */
export function localStore(data: StoreData, endpoint: string, timeout: number) {
  const session = createSession(data, {
    send: (message) => {
      linked.receive(message)
    },
    isFull: () => false,
  })
  const linked = linkedStore(
    {
      endpoint,
      send: session.handle,
      setBusy: () => undefined,
      close: () => {
        session.close()
        return Promise.resolve()
      },
    },
    timeout,
  )
  return {
    store: linked.store,
    lost: (reason: string) => {
      session.close()
      linked.lost(reason)
    },
  }
}
