import { declareOptions } from '@tsrun/core'
import { durationRule } from './arguments.ts'
import { createCalls } from './calls.ts'
import { StoreData } from './data.ts'
import { linkedStore } from './linked-store.ts'
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
  return localStore(new StoreData(), 'memory', readOptions(options).timeout).store
}

/**
 * Creates a store over data of this process. The returned `lost` ends all calls, like a lost
 * connection.
 */
export function localStore(
  data: StoreData,
  endpoint: string,
  timeout: number,
): { store: Store; lost: (reason: string) => void } {
  const session = createSession(data, {
    send: (message) => {
      calls.receive(message)
    },
    isFull: () => false,
  })
  const calls = createCalls(
    {
      endpoint,
      send: (message) => {
        session.handle(message)
      },
      setBusy: () => undefined,
      close: () => {
        session.close()
        return Promise.resolve()
      },
    },
    timeout,
  )
  const lost = (reason: string): void => {
    session.close()
    calls.lost(reason)
  }
  return { store: linkedStore(calls), lost }
}
