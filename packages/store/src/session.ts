import { isTsrError, tsrError } from '@tsrun/core'
import { costOf, type StoreData, type Wait } from './data.ts'
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

type Waiting = 'get' | 'multiGet' | 'wait' | 'queuePop'

type Immediate = Exclude<Request, { op: 'set' | Waiting | 'watch' | 'unwatch' }>

/** Most bytes of keys, with their overhead, that a client may wait for or watch at a time. */
const WAITING_LIMIT = 64 * 1024 * 1024

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
  /** The cost of each wait and watch in bytes, by the id of the request. */
  readonly #costs = new Map<number, number>()
  #cost = 0
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
      this.#run(id, message)
    })
  }

  /** Sends the answers that back-pressure has delayed. */
  resume(): void {
    for (const [id, answer] of this.#delayed) {
      if (this.#outlet.isFull()) return
      this.#delayed.delete(id)
      this.#release(id)
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

  #run(id: number, request: Request): void {
    switch (request.op) {
      case 'get':
        this.#awaitKeys(id, [request.key], () => this.#data.value(request.key) ?? null)
        return
      case 'multiGet':
        this.#awaitKeys(id, request.keys, () => valuesOf(this.#data, request.keys))
        return
      case 'wait':
        this.#awaitKeys(id, request.keys, () => null)
        return
      case 'queuePop':
        this.#pop(id, request.key)
        return
      case 'watch':
        this.#watch(id, request.key)
        return
      case 'unwatch':
        this.#watches.get(request.watch)?.()
        this.#watches.delete(request.watch)
        this.#release(request.watch)
        this.#answer(id, { result: null })
        return
      case 'set':
        this.#set(request)
        this.#answer(id, { result: null })
        return
      case 'check':
      case 'add':
      case 'compareSet':
      case 'append':
      case 'delete':
      case 'list':
      case 'queuePush':
      case 'queueLength':
        this.#answer(id, { result: runNow(this.#data, request) })
    }
  }

  /** Copies the value, which may share memory with a network buffer or with the caller. */
  #set({ key, value, timeToLive, whileConnected }: Request & { op: 'set' }): void {
    const own = new Uint8Array(value)
    this.#data.set(key, own, timeToLive)
    if (whileConnected === true) this.#owned.set(key, own)
    else this.#owned.delete(key)
  }

  #awaitKeys(id: number, keys: readonly string[], result: () => Results[Waiting]): void {
    const missing = this.#data.missing(keys)
    if (missing.length === 0) {
      this.#answer(id, { result: result() })
      return
    }
    this.#take(id, keys)
    const wait = this.#data.waiters.add(keys, missing, () => {
      this.#waits.delete(id)
      // Keep no values while the client is slow. Once the client has caught up, read the keys
      // again, or wait again.
      if (this.#outlet.isFull()) {
        this.#delayed.set(id, () => {
          this.#awaitKeys(id, keys, result)
        })
        return
      }
      this.#release(id)
      // Catch exceptions: they would reach the client that set the last key.
      this.#orFail(id, () => {
        this.#answer(id, { result: result() })
      })
    })
    this.#waits.set(id, wait)
  }

  #pop(id: number, queue: string): void {
    const give = (value: Uint8Array): void => {
      this.#taken.set(id, { queue, value })
      this.#answer(id, { result: value })
    }
    const value = this.#data.queues.take(queue)
    if (value !== undefined) {
      give(value)
      return
    }
    this.#take(id, [queue])
    const wait = this.#data.queues.await(queue, (next) => {
      this.#waits.delete(id)
      this.#release(id)
      give(next)
    })
    this.#waits.set(id, wait)
  }

  #watch(id: number, key: string): void {
    this.#take(id, [key])
    const stop = this.#data.watch(key, (value) => {
      this.#outlet.send(value === undefined ? { id, changed: true } : { id, changed: true, value })
    })
    this.#watches.set(id, stop)
    this.#answer(id, { result: null })
  }

  /** Cancels a wait. Does nothing for a call that was already answered. */
  #cancel(id: number): void {
    const wait = this.#waits.get(id)
    if (wait === undefined) return
    wait.cancel()
    this.#waits.delete(id)
    this.#release(id)
    this.#answer(id, { missing: [...wait.missing] })
  }

  /** @throws ERR_TSR_STORE_LIMIT */
  #take(id: number, keys: readonly string[]): void {
    const cost = keys.reduce((sum, key) => sum + costOf(key), 0)
    checkLimit('What the client waits for', this.#cost + cost, WAITING_LIMIT)
    this.#cost += cost
    this.#costs.set(id, cost)
  }

  #release(id: number): void {
    this.#cost -= this.#costs.get(id) ?? 0
    this.#costs.delete(id)
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

/**
 * Runs a request that is answered at once. Copies the values, because they may share memory with a
 * network buffer or with the caller.
 */
function runNow(data: StoreData, request: Immediate): Results[Immediate['op']] {
  switch (request.op) {
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

function internalError(error: unknown): ReturnType<typeof tsrError> {
  return tsrError('ERR_TSR_INTERNAL', { what: `the store failed: ${String(error)}` })
}
