import { tsrError } from '@tsrun/core'
import { checkLimit, VALUE_LIMIT } from './limits.ts'
import { Queues } from './queues.ts'
import type { Results } from './requests.ts'
import { KeyWaiters } from './waiters.ts'

const LONGEST_TIMER = 0x7fffffff

interface Entry {
  /** Never changed in place: readers may hold it. */
  readonly value: Uint8Array
  readonly expires: number | undefined
  timer?: NodeJS.Timeout
}

type Watcher = (value: Uint8Array | undefined) => void

/**
 * What the store holds, and who waits for it: keys, queues, waits and watches. Knows no sockets;
 * every method runs to its end, so operations are atomic and have one order for all clients.
 */
export class StoreData {
  readonly waiters = new KeyWaiters()
  readonly queues = new Queues()
  readonly #entries = new Map<string, Entry>()
  readonly #watchers = new Map<string, Set<Watcher>>()

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
    this.#write(key, value, timeToLive === undefined ? undefined : performance.now() + timeToLive)
  }

  /** @throws ERR_TSR_STORE_TYPE when the value is no decimal integer, or the sum no safe one */
  add(key: string, amount: number): number {
    const value = this.value(key)
    const text = value === undefined ? '0' : Buffer.from(value.subarray(0, 20)).toString('latin1')
    const sum = /^-?\d{1,16}$/.test(text) ? Number(text) + amount : NaN
    if (!Number.isSafeInteger(sum)) {
      throw tsrError('ERR_TSR_STORE_TYPE', {
        operation: `add(${String(amount)})`,
        key,
        actual: Number.isNaN(sum) ? 'something else' : text,
        expected: 'an integer in decimal text, the sum within 2^53',
      })
    }
    this.#update(key, Buffer.from(String(sum)))
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
        : Buffer.compare(value, expected) === 0
    if (!equal) return { success: false, value }
    this.#write(key, desired, undefined)
    return { success: true, value: desired }
  }

  /** @throws ERR_TSR_STORE_LIMIT */
  append(key: string, value: Uint8Array): number {
    const whole = Buffer.concat([this.value(key) ?? new Uint8Array(0), value])
    checkLimit('The value', whole.byteLength, VALUE_LIMIT)
    this.#update(key, whole)
    return whole.byteLength
  }

  delete(key: string): boolean {
    const entry = this.#entries.get(key)
    if (entry === undefined) return false
    clearTimeout(entry.timer)
    this.#entries.delete(key)
    this.waiters.vanished(key)
    this.#tell(key, undefined)
    return true
  }

  list(prefix: string): string[] {
    return [...this.#entries.keys()].filter((key) => key.startsWith(prefix)).sort()
  }

  /** Calls `watcher` at each change of the key; the returned function ends that. */
  watch(key: string, watcher: Watcher): () => void {
    const watchers = this.#watchers.get(key) ?? new Set()
    this.#watchers.set(key, watchers.add(watcher))
    return () => {
      watchers.delete(watcher)
      if (watchers.size === 0 && this.#watchers.get(key) === watchers) this.#watchers.delete(key)
    }
  }

  /** Forgets everything. */
  clear(): void {
    for (const { timer } of this.#entries.values()) clearTimeout(timer)
    this.#entries.clear()
  }

  /** A new value for a key that keeps its time to live. */
  #update(key: string, value: Uint8Array): void {
    this.#write(key, value, this.#entries.get(key)?.expires)
  }

  #write(key: string, value: Uint8Array, expires: number | undefined): void {
    clearTimeout(this.#entries.get(key)?.timer)
    const entry: Entry = { value, expires }
    this.#entries.set(key, entry)
    if (expires !== undefined) this.#expire(key, entry, expires)
    this.#tell(key, value)
    this.waiters.appeared(key)
  }

  #expire(key: string, entry: Entry, expires: number): void {
    const left = expires - performance.now()
    if (left === Infinity) return
    const timer = setTimeout(
      () => {
        if (performance.now() < expires) this.#expire(key, entry, expires)
        else this.delete(key)
      },
      Math.min(Math.max(0, Math.ceil(left)), LONGEST_TIMER),
    )
    entry.timer = timer.unref()
  }

  #tell(key: string, value: Uint8Array | undefined): void {
    for (const watcher of [...(this.#watchers.get(key) ?? [])]) watcher(value)
  }
}
