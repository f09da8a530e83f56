import { host, monotonicNow, tsrError } from '@tsrun/core'
import { checkLimit, STORE_LIMIT, VALUE_LIMIT, type Results } from './protocol.ts'

const LONGEST_TIMER = 0x7fffffff

interface Entry {
  /** Replaced, never changed in place, because readers may hold it. */
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
class Room {
  readonly #limit: number
  #used = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** @throws ERR_TSR_STORE_LIMIT */
  take(bytes: number): void {
    checkLimit('What the store would hold', this.#used + bytes, this.#limit)
    this.#used += bytes
  }

  free(bytes: number): void {
    this.#used -= bytes
  }
}

/**
 * The state of a store, without sockets: keys, queues, waits and watches. Every method is synchronous,
 * so operations are atomic and all clients see them in the same order.
 */
export class StoreData {
  readonly waiters = new KeyWaiters()
  readonly #room: Room
  readonly queues: Queues
  readonly #entries = new Map<string, Entry>()
  readonly #watchers = new Map<string, Set<Watcher>>()

  /** @param limit - largest number of bytes of all keys, values and queues */
  constructor(limit = STORE_LIMIT) {
    this.#room = new Room(limit)
    this.queues = new Queues(this.#room)
  }

  get size(): number {
    return this.#entries.size
  }

  get watches(): number {
    return [...this.#watchers.values()].reduce((sum, { size }) => sum + size, 0)
  }

  value(key: string): Uint8Array | undefined {
    return this.#entries.get(key)?.value
  }

  missing(keys: readonly string[]): string[] {
    return keys.filter((key) => !this.#entries.has(key))
  }

  set(key: string, value: Uint8Array, timeToLive?: number): void {
    this.#write(key, value, timeToLive === undefined ? undefined : monotonicNow() + timeToLive)
  }

  /** @throws ERR_TSR_STORE_TYPE unless the value is a decimal integer and the sum a safe integer */
  add(key: string, amount: number): number {
    const value = this.value(key)
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
    this.#update(key, host.bytesOf(String(sum)))
    return sum
  }

  compareSet(
    key: string,
    expected: Uint8Array | undefined,
    desired: Uint8Array,
  ): Results['compareSet'] {
    const value = this.value(key)
    const equal =
      value === undefined || expected === undefined
        ? value === expected
        : value.length === expected.length && value.every((byte, i) => byte === expected[i])
    if (!equal) return { success: false, value }
    this.#write(key, desired, undefined)
    return { success: true, value: desired }
  }

  /** @throws ERR_TSR_STORE_LIMIT */
  append(key: string, value: Uint8Array): number {
    const before = this.value(key) ?? new Uint8Array(0)
    const whole = host.bytesOf(new Uint8Array(before.length + value.length))
    whole.set(before)
    whole.set(value, before.length)
    checkLimit('The value', whole.byteLength, VALUE_LIMIT)
    this.#update(key, whole)
    return whole.byteLength
  }

  delete(key: string): boolean {
    const entry = this.#entries.get(key)
    if (entry === undefined) return false
    clearTimeout(entry.timer)
    this.#room.free(costOf(key, entry.value.byteLength))
    this.#entries.delete(key)
    this.waiters.vanished(key)
    this.#tell(key, undefined)
    return true
  }

  list(prefix: string): string[] {
    return [...this.#entries.keys()].filter((key) => key.startsWith(prefix)).sort()
  }

  /** Calls `watcher` at each change of the key until the returned function is called. */
  watch(key: string, watcher: Watcher): () => void {
    const watchers = this.#watchers.get(key) ?? new Set()
    this.#watchers.set(key, watchers.add(watcher))
    return () => {
      watchers.delete(watcher)
      if (watchers.size === 0 && this.#watchers.get(key) === watchers) this.#watchers.delete(key)
    }
  }

  clear(): void {
    for (const { timer } of this.#entries.values()) clearTimeout(timer)
    for (const [key, { value }] of this.#entries) this.#room.free(costOf(key, value.byteLength))
    this.#entries.clear()
  }

  /** Sets a new value and keeps the time to live. */
  #update(key: string, value: Uint8Array): void {
    this.#write(key, value, this.#entries.get(key)?.expires)
  }

  #write(key: string, value: Uint8Array, expires: number | undefined): void {
    const former = this.#entries.get(key)
    const freed = former === undefined ? 0 : costOf(key, former.value.byteLength)
    this.#room.take(costOf(key, value.byteLength) - freed)
    clearTimeout(former?.timer)
    const entry: Entry = { value, expires }
    this.#entries.set(key, entry)
    if (expires !== undefined) this.#expire(key, entry, expires)
    this.#tell(key, value)
    this.waiters.appeared(key)
  }

  #expire(key: string, entry: Entry, expires: number): void {
    const left = expires - monotonicNow()
    if (left === Infinity) return
    entry.timer = host.background(
      () => {
        if (monotonicNow() < expires) this.#expire(key, entry, expires)
        else this.delete(key)
      },
      Math.min(Math.max(0, Math.ceil(left)), LONGEST_TIMER),
    )
  }

  #tell(key: string, value: Uint8Array | undefined): void {
    for (const watcher of [...(this.#watchers.get(key) ?? [])]) watcher(value)
  }
}

/** A client's wait for keys, or for a value of a queue. */
export interface Wait {
  /** The keys that are missing, or the name of the queue. */
  readonly missing: ReadonlySet<string>
  /** Ends the wait without an answer. */
  cancel(): void
}

interface KeyWait {
  readonly missing: Set<string>
  readonly keys: readonly string[]
  readonly done: () => void
}

/** Waits for keys. A wait ends when all of its keys exist at the same time. */
class KeyWaiters {
  readonly #byKey = new Map<string, Set<KeyWait>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  /** Calls `done` once all `keys` exist. `missing` lists the keys that do not exist now. */
  add(keys: readonly string[], missing: Iterable<string>, done: () => void): Wait {
    const wait: KeyWait = { keys, missing: new Set(missing), done }
    for (const key of keys) {
      this.#byKey.set(key, (this.#byKey.get(key) ?? new Set()).add(wait))
    }
    this.#size++
    return {
      missing: wait.missing,
      cancel: () => {
        this.#remove(wait)
      },
    }
  }

  appeared(key: string): void {
    for (const wait of [...(this.#byKey.get(key) ?? [])]) {
      wait.missing.delete(key)
      if (wait.missing.size > 0) continue
      this.#remove(wait)
      wait.done()
    }
  }

  vanished(key: string): void {
    for (const wait of this.#byKey.get(key) ?? []) wait.missing.add(key)
  }

  #remove(wait: KeyWait): void {
    if (this.#byKey.get(wait.keys[0] ?? '')?.has(wait) !== true) return
    for (const key of wait.keys) {
      const waits = this.#byKey.get(key)
      waits?.delete(wait)
      if (waits?.size === 0) this.#byKey.delete(key)
    }
    this.#size--
  }
}

type Take = (value: Uint8Array) => void

/** Named first-in first-out queues. Clients that wait for a value are served in order. */
class Queues {
  readonly #values = new Map<string, Uint8Array[]>()
  readonly #takers = new Map<string, Set<Take>>()
  readonly #room: Room
  #waiting = 0

  constructor(room: Room) {
    this.#room = room
  }

  get size(): number {
    return this.#values.size
  }

  get waiting(): number {
    return this.#waiting
  }

  length(queue: string): number {
    return this.#values.get(queue)?.length ?? 0
  }

  /** Returns the new length, which is 0 if a waiting client took the value. */
  push(queue: string, value: Uint8Array): number {
    this.#room.take(costOf(queue, value.byteLength))
    if (this.#hand(queue, value)) return 0
    const values = this.#values.get(queue) ?? []
    this.#values.set(queue, values)
    return values.push(value)
  }

  /** Puts taken values back to the front of the queue, in their order. */
  putBack(queue: string, values: readonly Uint8Array[]): void {
    const waiting = values.filter((value) => !this.#hand(queue, value))
    if (waiting.length > 0)
      this.#values.set(queue, [...waiting, ...(this.#values.get(queue) ?? [])])
  }

  /** Releases the memory of a confirmed value. */
  forget(queue: string, value: Uint8Array): void {
    this.#room.free(costOf(queue, value.byteLength))
  }

  /**
   * Takes the oldest value; undefined if the queue is empty. The value counts towards the memory
   * limit until `forget` or `putBack`.
   */
  take(queue: string): Uint8Array | undefined {
    const values = this.#values.get(queue)
    const value = values?.shift()
    if (values?.length === 0) this.#values.delete(queue)
    return value
  }

  /** Passes the next value to `taker`, after all earlier takers were served. */
  await(queue: string, taker: Take): Wait {
    this.#takers.set(queue, (this.#takers.get(queue) ?? new Set()).add(taker))
    this.#waiting++
    return {
      missing: new Set([queue]),
      cancel: () => {
        this.#remove(queue, taker)
      },
    }
  }

  #hand(queue: string, value: Uint8Array): boolean {
    const [taker] = this.#takers.get(queue) ?? []
    if (taker === undefined) return false
    this.#remove(queue, taker)
    taker(value)
    return true
  }

  #remove(queue: string, taker: Take): void {
    const takers = this.#takers.get(queue)
    if (takers?.delete(taker) !== true) return
    if (takers.size === 0) this.#takers.delete(queue)
    this.#waiting--
  }
}
