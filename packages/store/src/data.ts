import { host, monotonicNow, tsrError } from '@tsrun/core'
import { checkLimit, STORE_LIMIT, VALUE_LIMIT, type Results } from './protocol.ts'

const LONGEST_TIMER = 0x7fffffff

interface Entry {
  /** The bytes must not be changed in place, only replaced, because readers may hold them. */
  readonly value: Uint8Array
  readonly expires: number | undefined
  timer?: NodeJS.Timeout
}

type Watcher = (value: Uint8Array | undefined) => void

/** Estimated overhead in bytes of each key and each value of a queue. */
const ENTRY_COST = 200

/** Estimated memory of a key, or of a queue's value, in bytes. @param size - bytes of the value */
export function costOf(name: string, size = 0): number {
  return ENTRY_COST + 2 * name.length + size
}

/** Counts the memory of a store, so that no client can exhaust the launcher's memory. */
function createRoom(limit: number) {
  let used = 0
  return {
    /** @throws ERR_TSR_STORE_LIMIT */
    take(bytes: number) {
      checkLimit('What the store would hold', used + bytes, limit)
      used += bytes
    },
    free(bytes: number) {
      used -= bytes
    },
  }
}

/** Sets of values by key. */
function createMultimap<Value>() {
  const sets = new Map<string, Set<Value>>()
  return {
    /** Number of pairs of a key and a value. */
    get size() {
      return [...sets.values()].reduce((sum, { size }) => sum + size, 0)
    },
    of: (key: string): Iterable<Value> => sets.get(key) ?? [],
    add(key: string, value: Value) {
      sets.set(key, (sets.get(key) ?? new Set()).add(value))
    },
    /** Returns whether the key had the value. */
    delete(key: string, value: Value) {
      const values = sets.get(key)
      const isFound = values?.delete(value) === true
      if (values?.size === 0) sets.delete(key)
      return isFound
    },
  }
}

export type StoreData = ReturnType<typeof createStoreData>

/**
 * The state of a store, without sockets: keys, queues, waits and watches. Every method is synchronous,
 * so operations are atomic and all clients see them in the same order.
 *
 * @param limit - largest number of bytes of all keys, values and queues
 */
export function createStoreData(limit = STORE_LIMIT) {
  const room = createRoom(limit)
  const entries = new Map<string, Entry>()
  const watchers = createMultimap<Watcher>()
  const waiters = createKeyWaiters()

  const tell = (key: string, value: Uint8Array | undefined) => {
    for (const watcher of [...watchers.of(key)]) watcher(value)
  }

  const write = (key: string, value: Uint8Array, expires: number | undefined) => {
    const former = entries.get(key)
    const freed = former === undefined ? 0 : costOf(key, former.value.byteLength)
    room.take(costOf(key, value.byteLength) - freed)
    clearTimeout(former?.timer)
    const entry: Entry = { value, expires }
    entries.set(key, entry)
    if (expires !== undefined) expire(key, entry, expires)
    tell(key, value)
    waiters.appeared(key)
  }

  /** Sets a new value and keeps the time to live. */
  const update = (key: string, value: Uint8Array) => {
    write(key, value, entries.get(key)?.expires)
  }

  const expire = (key: string, entry: Entry, expires: number): void => {
    const left = expires - monotonicNow()
    if (left === Infinity) return
    entry.timer = host.background(
      () => {
        if (monotonicNow() < expires) expire(key, entry, expires)
        else remove(key)
      },
      Math.min(Math.max(0, Math.ceil(left)), LONGEST_TIMER),
    )
  }

  const remove = (key: string) => {
    const entry = entries.get(key)
    if (entry === undefined) return false
    clearTimeout(entry.timer)
    room.free(costOf(key, entry.value.byteLength))
    entries.delete(key)
    waiters.vanished(key)
    tell(key, undefined)
    return true
  }

  const valueOf = (key: string) => entries.get(key)?.value

  return {
    waiters,
    queues: createQueues(room),
    get size() {
      return entries.size
    },
    get watches() {
      return watchers.size
    },
    value: valueOf,
    missing: (keys: readonly string[]) => keys.filter((key) => !entries.has(key)),
    set: (key: string, value: Uint8Array, timeToLive?: number) => {
      write(key, value, timeToLive === undefined ? undefined : monotonicNow() + timeToLive)
    },
    /** @throws ERR_TSR_STORE_TYPE unless the value is a decimal integer and the sum a safe integer */
    add(key: string, amount: number) {
      const value = valueOf(key)
      const text = value === undefined ? '0' : String.fromCharCode(...value.subarray(0, 20))
      const sum = /^-?\d{1,16}$/.test(text) ? Number(text) + amount : NaN
      if (!Number.isSafeInteger(sum)) {
        throw tsrError('ERR_TSR_STORE_TYPE', {
          operation: `add(${amount})`,
          key,
          actual: Number.isNaN(sum) ? 'something else' : text,
          expected: 'an integer in decimal text, the sum within 2^53',
        })
      }
      update(key, host.bytesOf(String(sum)))
      return sum
    },
    compareSet(
      key: string,
      expected: Uint8Array | undefined,
      desired: Uint8Array,
    ): Results['compareSet'] {
      const value = valueOf(key)
      const equal =
        value === undefined || expected === undefined
          ? value === expected
          : value.length === expected.length && value.every((byte, i) => byte === expected[i])
      if (!equal) return { success: false, value }
      write(key, desired, undefined)
      return { success: true, value: desired }
    },
    /** @throws ERR_TSR_STORE_LIMIT */
    append(key: string, value: Uint8Array) {
      const before = valueOf(key) ?? new Uint8Array(0)
      const whole = host.bytesOf(new Uint8Array(before.length + value.length))
      whole.set(before)
      whole.set(value, before.length)
      checkLimit('The value', whole.byteLength, VALUE_LIMIT)
      update(key, whole)
      return whole.byteLength
    },
    delete: remove,
    list: (prefix: string) => [...entries.keys()].filter((key) => key.startsWith(prefix)).sort(),
    /** Calls `watcher` at each change of the key until the returned function is called. */
    watch(key: string, watcher: Watcher): () => void {
      watchers.add(key, watcher)
      return () => {
        watchers.delete(key, watcher)
      }
    },
    clear() {
      for (const [key, { value, timer }] of entries) {
        clearTimeout(timer)
        room.free(costOf(key, value.byteLength))
      }
      entries.clear()
    },
  }
}

/** A client's wait for keys, or for a value of a queue. */
export interface Wait {
  /** The keys that are missing, or the name of the queue. */
  readonly missing: ReadonlySet<string>
  /** Ends the wait without an answer. */
  cancel(): void
}

interface KeyWait extends Wait {
  readonly missing: Set<string>
  readonly keys: readonly string[]
  readonly done: () => void
}

/** Waits for keys. A wait ends when all of its keys exist at the same time. */
function createKeyWaiters() {
  const waits = new Set<KeyWait>()
  const byKey = createMultimap<KeyWait>()

  const remove = (wait: KeyWait) => {
    if (!waits.delete(wait)) return
    for (const key of wait.keys) byKey.delete(key, wait)
  }

  return {
    get size() {
      return waits.size
    },
    /** Calls `done` once all `keys` exist. `missing` lists the keys that do not exist now. */
    add(keys: readonly string[], missing: Iterable<string>, done: () => void): Wait {
      const wait = {
        keys,
        missing: new Set(missing),
        done,
        cancel: () => {
          remove(wait)
        },
      }
      waits.add(wait)
      for (const key of keys) byKey.add(key, wait)
      return wait
    },
    appeared(key: string) {
      for (const wait of [...byKey.of(key)]) {
        wait.missing.delete(key)
        if (wait.missing.size > 0) continue
        remove(wait)
        wait.done()
      }
    },
    vanished(key: string) {
      for (const wait of byKey.of(key)) wait.missing.add(key)
    },
  }
}

type Take = (value: Uint8Array) => void

/** Named first-in first-out queues. Clients that wait for a value are served in order. */
function createQueues(room: ReturnType<typeof createRoom>) {
  const values = new Map<string, Uint8Array[]>()
  const takers = createMultimap<Take>()

  const hand = (queue: string, value: Uint8Array) => {
    const [taker] = takers.of(queue)
    if (taker === undefined) return false
    takers.delete(queue, taker)
    taker(value)
    return true
  }

  return {
    get waiting() {
      return takers.size
    },
    length: (queue: string) => values.get(queue)?.length ?? 0,
    /** Returns the new length, which is 0 if a waiting client took the value. */
    push(queue: string, value: Uint8Array) {
      room.take(costOf(queue, value.byteLength))
      if (hand(queue, value)) return 0
      const queued = values.get(queue) ?? []
      values.set(queue, queued)
      return queued.push(value)
    },
    /** Puts taken values back at the front of the queue, in their original order. */
    putBack(queue: string, taken: readonly Uint8Array[]) {
      const waiting = taken.filter((value) => !hand(queue, value))
      if (waiting.length > 0) values.set(queue, [...waiting, ...(values.get(queue) ?? [])])
    },
    /** Releases the memory of a confirmed value. */
    forget(queue: string, value: Uint8Array) {
      room.free(costOf(queue, value.byteLength))
    },
    /** Takes the oldest value, if any. It counts towards the memory limit until `forget`. */
    take(queue: string): Uint8Array | undefined {
      const queued = values.get(queue)
      const value = queued?.shift()
      if (queued?.length === 0) values.delete(queue)
      return value
    },
    /** Passes the next value to `taker`, after all earlier takers were served. */
    await(queue: string, taker: Take): Wait {
      takers.add(queue, taker)
      return {
        missing: new Set([queue]),
        cancel: () => {
          takers.delete(queue, taker)
        },
      }
    },
  }
}
