import { isTsrError, tsrError } from '@tsrun/core'
import type { StoreData, Wait } from './data.ts'
import {
  checkLimit,
  checkRequest,
  type Answer,
  type ClientMessage,
  type Request,
  type Results,
  type ServerMessage,
  VALUE_LIMIT,
} from './protocol.ts'

type Result = Results[keyof Results]

/** Sends messages to a client. */
export interface Outlet {
  send(message: ServerMessage): void
  /** True if so much is unsent that answers must wait for `Session.resume`. */
  isFull(): boolean
}

/** The requests of one client. When the client disconnects, its waits and watches end. */
export class Session {
  readonly #data: StoreData
  readonly #outlet: Outlet
  readonly #waits = new Map<number, Wait>()
  /** Finished waits whose answers are delayed by back-pressure, by the id of the request. */
  readonly #delayed = new Map<number, () => void>()
  readonly #watches = new Map<number, () => void>()
  /** Values that the client has taken from queues but not confirmed, by the id of the request. */
  readonly #taken = new Map<number, { readonly queue: string; readonly value: Uint8Array }>()
  /** Keys to delete when this client disconnects, with the values that the client has set. */
  readonly #owned = new Map<string, Uint8Array>()

  constructor(data: StoreData, outlet: Outlet) {
    this.#data = data
    this.#outlet = outlet
  }

  handle({ id, ...message }: ClientMessage): void {
    this.#orFail(id, () => {
      if (message.op === 'cancel') {
        this.#cancel(id)
        return
      }
      if (message.op === 'received') {
        const taken = this.#taken.get(id)
        this.#taken.delete(id)
        if (taken !== undefined) this.#data.queues.forget(taken.queue, taken.value)
        return
      }
      if (this.#waits.has(id) || this.#watches.has(id) || this.#taken.has(id)) {
        const reason = `another request of the client has its number, ${id}`
        throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: 0, reason })
      }
      checkRequest(message)
      const result = this.#run(id, message)
      if (result !== undefined) this.#answer(id, { result })
    })
  }

  /** Sends the answers that back-pressure has delayed. */
  resume(): void {
    for (const [id, answer] of this.#delayed) {
      if (this.#outlet.isFull()) return
      this.#delayed.delete(id)
      this.#orFail(id, answer)
    }
  }

  close(): void {
    for (const wait of this.#waits.values()) wait.cancel()
    for (const stop of this.#watches.values()) stop()
    this.#waits.clear()
    this.#delayed.clear()
    this.#watches.clear()
    const taken = [...this.#taken.values()]
    this.#taken.clear()
    for (const queue of new Set(taken.map((each) => each.queue))) {
      const values = taken.filter((each) => each.queue === queue).map(({ value }) => value)
      this.#data.queues.putBack(queue, values)
    }
    for (const [key, value] of this.#owned) {
      // Delete only the client's own value: another client may have set the key since.
      if (this.#data.value(key) === value) this.#data.delete(key)
    }
    this.#owned.clear()
  }

  /**
   * Returns the result, or undefined if the answer comes later. Copies the values that it stores,
   * because they may share memory with a network buffer or with the caller.
   */
  #run(id: number, request: Request): Result | undefined {
    const data = this.#data
    switch (request.op) {
      case 'get':
        return this.#awaitKeys(id, [request.key], () => data.value(request.key) ?? null)
      case 'multiGet':
        return this.#awaitKeys(id, request.keys, () => valuesOf(data, request.keys))
      case 'wait':
        return this.#awaitKeys(id, request.keys, () => null)
      case 'queuePop':
        return this.#pop(id, request.key)
      case 'watch':
        this.#watch(id, request.key)
        return null
      case 'unwatch':
        this.#watches.get(request.watch)?.()
        this.#watches.delete(request.watch)
        return null
      case 'set':
        this.#set(request)
        return null
      case 'check':
        return data.missing(request.keys).length === 0
      case 'add':
        return data.add(request.key, request.amount)
      case 'compareSet':
        return data.compareSet(request.key, request.expected, new Uint8Array(request.desired))
      case 'append':
        return data.append(request.key, request.value)
      case 'delete':
        return data.delete(request.key)
      case 'list':
        return data.list(request.key)
      case 'queuePush':
        return data.queues.push(request.key, new Uint8Array(request.value))
      case 'queueLength':
        return data.queues.length(request.key)
    }
  }

  #set({ key, value, timeToLive, whileConnected }: Request & { op: 'set' }): void {
    const own = new Uint8Array(value)
    this.#data.set(key, own, timeToLive)
    if (whileConnected === true) this.#owned.set(key, own)
    else this.#owned.delete(key)
  }

  #awaitKeys(id: number, keys: readonly string[], result: () => Result): Result | undefined {
    const missing = this.#data.missing(keys)
    if (missing.length === 0) return result()
    const answer = (): void => {
      const found = this.#awaitKeys(id, keys, result)
      if (found !== undefined) this.#answer(id, { result: found })
    }
    const wait = this.#data.waiters.add(keys, missing, () => {
      this.#waits.delete(id)
      // Keep no values while the client is slow. Once the client has caught up, read the keys
      // again, or wait again. Catch exceptions: they would reach the client that set the last key.
      if (this.#outlet.isFull()) this.#delayed.set(id, answer)
      else this.#orFail(id, answer)
    })
    this.#waits.set(id, wait)
    return undefined
  }

  #pop(id: number, queue: string): Uint8Array | undefined {
    const value = this.#data.queues.take(queue)
    if (value === undefined) {
      const wait = this.#data.queues.await(queue, (next) => {
        this.#waits.delete(id)
        this.#taken.set(id, { queue, value: next })
        this.#answer(id, { result: next })
      })
      this.#waits.set(id, wait)
    } else {
      this.#taken.set(id, { queue, value })
    }
    return value
  }

  #watch(id: number, key: string): void {
    const stop = this.#data.watch(key, (value) => {
      this.#outlet.send(value === undefined ? { id, changed: true } : { id, changed: true, value })
    })
    this.#watches.set(id, stop)
  }

  /** Cancels a wait. Does nothing for a call that was already answered. */
  #cancel(id: number): void {
    const wait = this.#waits.get(id)
    if (wait === undefined) return
    wait.cancel()
    this.#waits.delete(id)
    this.#answer(id, { missing: [...wait.missing] })
  }

  #orFail(id: number, action: () => void): void {
    try {
      action()
    } catch (error) {
      const { code, facts } = isTsrError(error) ? error : internalError(error)
      this.#answer(id, { code, facts })
    }
  }

  #answer(id: number, answer: Answer): void {
    this.#outlet.send({ id, ...answer })
  }
}

/** @throws ERR_TSR_STORE_LIMIT */
function valuesOf(data: StoreData, keys: readonly string[]): Uint8Array[] {
  const values = keys.map((key) => data.value(key) ?? new Uint8Array(0))
  const bytes = values.reduce((sum, { byteLength }) => sum + byteLength, 0)
  checkLimit('The values together', bytes, VALUE_LIMIT)
  return values
}

function internalError(error: unknown): ReturnType<typeof tsrError> {
  return tsrError('ERR_TSR_INTERNAL', { what: `the store failed: ${String(error)}` })
}
