import { linkedStore } from './calls.ts'
import { createStoreData, type StoreData } from './data.ts'
import { createSession } from './session.ts'
import type { Store } from './store.ts'

/**
 * Creates a store within this process, for a world of one and for tests.
 *
 * @example
 * const store = memoryStore()
 * await store.set('greeting', 'hello')
 */
export function memoryStore(): Store {
  return localStore(createStoreData(), 'memory').store
}

/** Creates a store in this process. Calling `lost` ends all calls, as a lost connection does. */
export function localStore(data: StoreData, endpoint: string) {
  const session = createSession(data, {
    send: (message) => {
      linked.receive(message)
    },
    isFull: () => false,
  })
  const linked = linkedStore({
    endpoint,
    send: session.handle,
    setBusy: () => undefined,
    close: () => {
      session.close()
      return Promise.resolve()
    },
  })
  return {
    store: linked.store,
    lost: (reason: string) => {
      session.close()
      linked.lost(reason)
    },
  }
}
