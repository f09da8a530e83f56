/** Options of every call that may wait. */
export interface StoreCallOptions {
  /** Milliseconds; default: the time-out of the store. */
  readonly timeout?: number
  readonly signal?: AbortSignal
}

export interface StoreSetOptions {
  /** Milliseconds after which the key vanishes; default: never. */
  readonly timeToLive?: number
  /**
   * The key vanishes when the connection that set it ends, however it ends: others who watch it
   * learn at once that its owner is gone. Default false.
   */
  readonly whileConnected?: boolean
}

/** What happened to a watched key; `value` is undefined when it was deleted or expired. */
export interface StoreEvent {
  readonly key: string
  readonly value: Uint8Array | undefined
}

/**
 * The rendezvous key-value store: how ranks find each other before they can exchange messages.
 * Keys are text up to 8 KiB, values bytes up to 8 MiB; a string value is stored as UTF-8.
 * Every write is acknowledged: when its promise resolves, every other client sees it.
 */
export interface Store {
  /** Sets a key, whether or not it exists. */
  set(key: string, value: Uint8Array | string, options?: StoreSetOptions): Promise<void>
  /**
   * The value of a key; waits until it exists.
   *
   * @throws ERR_TSR_STORE_TIMEOUT naming the key
   */
  get(key: string, options?: StoreCallOptions): Promise<Uint8Array>
  /**
   * Waits until all keys exist.
   *
   * @throws ERR_TSR_STORE_TIMEOUT naming the keys that are missing
   */
  wait(keys: readonly string[], options?: StoreCallOptions): Promise<void>
  /** Whether all keys exist now. */
  check(keys: readonly string[]): Promise<boolean>
  /** Adds to a counter, which starts at 0 and is stored as decimal text; the new value. */
  add(key: string, amount: number): Promise<number>
  /**
   * Sets the key to `desired` if its value is `expected` (undefined: if it does not exist).
   * `value` is what the key holds afterwards.
   */
  compareSet(
    key: string,
    expected: Uint8Array | string | undefined,
    desired: Uint8Array | string,
  ): Promise<{ success: boolean; value: Uint8Array | undefined }>
  /** Appends to the value, which starts empty; the new length in bytes. */
  append(key: string, value: Uint8Array | string): Promise<number>
  /** Deletes a key; whether it existed. */
  delete(key: string): Promise<boolean>
  /** The keys with this prefix, sorted. */
  list(prefix?: string): Promise<string[]>
  /** Appends a value to a queue; its new length. Queues have names of their own, apart from keys. */
  queuePush(queue: string, value: Uint8Array | string): Promise<number>
  /** Takes the oldest value of a queue; waits until there is one. Each value goes to one caller. */
  queuePop(queue: string, options?: StoreCallOptions): Promise<Uint8Array>
  queueLength(queue: string): Promise<number>
  /** Calls `listener` at each change of a key from now on; the returned function ends it. */
  watch(key: string, listener: (event: StoreEvent) => void): Promise<() => Promise<void>>
  /** Ends the connection; pending calls reject with ERR_TSR_STORE_CLOSED. */
  close(): Promise<void>
}
