import { checkKeys, keyRule } from './arguments.ts'

/** Options of every call that may wait. */
export interface StoreCallOptions {
  /** Milliseconds until the call fails. Default: the time-out of the store. */
  readonly timeout?: number
  readonly signal?: AbortSignal | undefined
}

/** Options of `Store.set`. */
export interface StoreSetOptions {
  /** Milliseconds after which the key is deleted. Default: never. */
  readonly timeToLive?: number
  /**
   * Deletes the key when the connection that set it ends, for any reason. Clients that watch the key
   * then learn immediately that its owner is gone. Default: false.
   */
  readonly whileConnected?: boolean
}

/** A change of a watched key. `value` is undefined if the key was deleted or has expired. */
export interface StoreEvent {
  readonly key: string
  readonly value: Uint8Array | undefined
}

/**
 * A rendezvous key-value store, through which ranks find each other before they can exchange messages.
 * Keys are text of up to 8 KiB. Values are up to 8 MiB of bytes; a string is stored as UTF-8. Every
 * write is acknowledged: once its promise resolves, all clients see it.
 */
export interface Store {
  /** Sets a key, and replaces an existing value. */
  set(key: string, value: Uint8Array | string, options?: StoreSetOptions): Promise<void>
  /**
   * Waits until a key exists and returns its value.
   *
   * @throws ERR_TSR_STORE_TIMEOUT naming the key
   */
  get(key: string, options?: StoreCallOptions): Promise<Uint8Array>
  /**
   * Waits until all keys exist and returns their values in the order of the keys, in one round trip.
   * The values may total up to 8 MiB.
   *
   * @throws ERR_TSR_STORE_TIMEOUT naming the missing keys, ERR_TSR_STORE_LIMIT
   */
  multiGet(keys: readonly string[], options?: StoreCallOptions): Promise<Uint8Array[]>
  /**
   * Waits until all keys exist.
   *
   * @throws ERR_TSR_STORE_TIMEOUT naming the missing keys
   */
  wait(keys: readonly string[], options?: StoreCallOptions): Promise<void>
  /** Whether all keys exist now. */
  check(keys: readonly string[]): Promise<boolean>
  /** Adds to a counter, which starts at 0 and is stored as decimal text. Returns the new value. */
  add(key: string, amount: number): Promise<number>
  /**
   * Sets a key to `desired` if its value is `expected`, or if `expected` is undefined and the key does
   * not exist. Returns the resulting value of the key as `value`.
   */
  compareSet(
    key: string,
    expected: Uint8Array | string | undefined,
    desired: Uint8Array | string,
  ): Promise<{ success: boolean; value: Uint8Array | undefined }>
  /** Appends to a value, which starts empty. Returns the new length in bytes. */
  append(key: string, value: Uint8Array | string): Promise<number>
  /** Deletes a key. Returns whether it existed. */
  delete(key: string): Promise<boolean>
  /** The keys that start with `prefix`, sorted. */
  list(prefix?: string): Promise<string[]>
  /** Appends a value to a queue. Returns the new length. Queues and keys have separate namespaces. */
  queuePush(queue: string, value: Uint8Array | string): Promise<number>
  /** Waits until a queue has a value, and removes and returns the oldest. Each value goes to one caller. */
  queuePop(queue: string, options?: StoreCallOptions): Promise<Uint8Array>
  queueLength(queue: string): Promise<number>
  /** Calls `listener` at each change of a key until the returned function is called. */
  watch(key: string, listener: (event: StoreEvent) => void): Promise<() => Promise<void>>
  /** Ends the connection. Pending calls reject with ERR_TSR_STORE_CLOSED. */
  close(): Promise<void>
}

/** Methods that take a key, a list of keys or a queue first, and whose result contains no key. */
const forwarded = [
  'set',
  'get',
  'multiGet',
  'wait',
  'check',
  'add',
  'compareSet',
  'append',
  'delete',
  'queuePush',
  'queuePop',
  'queueLength',
] as const satisfies readonly (keyof Store)[]

/**
 * Returns a view of `store` that prepends `prefix` to the name of every key and queue. Several users
 * can then share one store without seeing each other's keys. Errors name the full key. `close` closes
 * `store`.
 *
 * @example
 * const rendezvous = prefixStore(store, 'rendezvous/0/')
 */
export function prefixStore(store: Store, prefix: string): Store {
  keyRule.check('prefix', prefix)
  const fullKey = (key: string) => prefix + keyRule.check('key', key)
  const methods = forwarded.map((name) => {
    const call = store[name].bind(store) as (...values: unknown[]) => Promise<unknown>
    return [
      name,
      async (keys: string | readonly string[], ...values: unknown[]) =>
        await call(
          typeof keys === 'object' ? checkKeys(keys).map(fullKey) : fullKey(keys),
          ...values,
        ),
    ]
  })
  return {
    ...(Object.fromEntries(methods) as Pick<Store, (typeof forwarded)[number]>),
    list: async (within = '') =>
      (await store.list(fullKey(within))).map((key) => key.slice(prefix.length)),
    watch: async (key, listener) =>
      await store.watch(fullKey(key), ({ value }) => {
        listener({ key, value })
      }),
    close: async () => {
      await store.close()
    },
  }
}
