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

type Result = Results[keyof Results]

/** Most bytes of keys, with their overhead, that a client may wait for or watch at a time. */
const WAITING_LIMIT = 64 * 1024 * 1024

/** Sends messages to a client. */
export interface Outlet {
  send(message: ServerMessage): void
  /** True if too much is unsent: answers must then wait for `resume` of the session. */
  isFull(): boolean
}

/** Serves the requests of one client. When the client disconnects, its waits and watches end. */
export function createSession(data: StoreData, outlet: Outlet) {
  const waits = new Map<number, Wait>()
  /** Finished waits whose answers are delayed by back-pressure, by the id of the request. */
  const delayed = new Map<number, () => void>()
  const watches = new Map<number, () => void>()
  /** The cost of each wait and watch in bytes, by the id of the request. */
  const costs = new Map<number, number>()
  let waiting = 0
  /** Values that the client has taken from queues but not confirmed, by the id of the request. */
  const taken = new Map<number, { readonly queue: string; readonly value: Uint8Array }>()
  /** Keys to delete when this client disconnects, with the values that the client has set. */
  const owned = new Map<string, Uint8Array>()

  const answer = (id: number, message: Answer): void => {
    outlet.send({ id, ...message })
  }

  const orFail = (id: number, action: () => void): void => {
    try {
      action()
    } catch (error) {
      const { code, facts } = isTsrError(error) ? error : internalError(error)
      answer(id, { code, facts })
    }
  }

  /**
   * Returns the result, or undefined if the answer comes later. Copies the values that it stores,
   * because they may share memory with a network buffer or with the caller.
   */
  const run = (id: number, request: Request): Result | undefined => {
    switch (request.op) {
      case 'get':
        return awaitKeys(id, [request.key], () => data.value(request.key) ?? null)
      case 'multiGet':
        return awaitKeys(id, request.keys, () => valuesOf(data, request.keys))
      case 'wait':
        return awaitKeys(id, request.keys, () => null)
      case 'queuePop':
        return pop(id, request.key)
      case 'watch':
        watch(id, request.key)
        return null
      case 'unwatch':
        unwatch(request.watch)
        return null
      case 'set':
        set(request)
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

  const set = ({ key, value, timeToLive, whileConnected }: Request & { op: 'set' }): void => {
    const own = new Uint8Array(value)
    data.set(key, own, timeToLive)
    if (whileConnected === true) owned.set(key, own)
    else owned.delete(key)
  }

  const awaitKeys = (
    id: number,
    keys: readonly string[],
    result: () => Result,
  ): Result | undefined => {
    const missing = data.missing(keys)
    if (missing.length === 0) return result()
    const retry = (): void => {
      const found = awaitKeys(id, keys, result)
      if (found !== undefined) answer(id, { result: found })
    }
    take(id, keys)
    const wait = data.waiters.add(keys, missing, () => {
      waits.delete(id)
      // Keep no values while the client is slow. Once the client has caught up, read the keys
      // again, or wait again. Catch exceptions: they would reach the client that set the last key.
      if (outlet.isFull()) {
        delayed.set(id, retry)
        return
      }
      release(id)
      orFail(id, retry)
    })
    waits.set(id, wait)
    return undefined
  }

  const pop = (id: number, queue: string): Uint8Array | undefined => {
    const value = data.queues.take(queue)
    if (value === undefined) {
      take(id, [queue])
      const wait = data.queues.await(queue, (next) => {
        waits.delete(id)
        release(id)
        taken.set(id, { queue, value: next })
        answer(id, { result: next })
      })
      waits.set(id, wait)
    } else {
      taken.set(id, { queue, value })
    }
    return value
  }

  const watch = (id: number, key: string): void => {
    take(id, [key])
    const stop = data.watch(key, (value) => {
      outlet.send(value === undefined ? { id, changed: true } : { id, changed: true, value })
    })
    watches.set(id, stop)
  }

  const unwatch = (id: number): void => {
    const stop = watches.get(id)
    if (stop === undefined) return
    stop()
    watches.delete(id)
    release(id)
  }

  /** Cancels a wait. Does nothing for a call that was already answered. */
  const cancel = (id: number): void => {
    const wait = waits.get(id)
    if (wait === undefined) return
    wait.cancel()
    waits.delete(id)
    release(id)
    answer(id, { missing: [...wait.missing] })
  }

  /** @throws ERR_TSR_STORE_LIMIT */
  const take = (id: number, keys: readonly string[]): void => {
    const cost = keys.reduce((sum, key) => sum + costOf(key), 0)
    checkLimit('What the client waits for', waiting + cost, WAITING_LIMIT)
    waiting += cost
    costs.set(id, cost)
  }

  const release = (id: number): void => {
    waiting -= costs.get(id) ?? 0
    costs.delete(id)
  }

  return {
    handle({ id, ...message }: ClientMessage): void {
      orFail(id, () => {
        if (message.op === 'cancel') {
          cancel(id)
          return
        }
        if (message.op === 'received') {
          const confirmed = taken.get(id)
          taken.delete(id)
          if (confirmed !== undefined) data.queues.forget(confirmed.queue, confirmed.value)
          return
        }
        if (costs.has(id) || taken.has(id)) {
          const reason = `another request of the client has its number, ${id}`
          throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: 0, reason })
        }
        checkRequest(message)
        const result = run(id, message)
        if (result !== undefined) answer(id, { result })
      })
    },
    /** Sends the answers that back-pressure has delayed. */
    resume(): void {
      for (const [id, retry] of delayed) {
        if (outlet.isFull()) return
        delayed.delete(id)
        release(id)
        orFail(id, retry)
      }
    },
    close(): void {
      for (const wait of waits.values()) wait.cancel()
      for (const stop of watches.values()) stop()
      waits.clear()
      delayed.clear()
      watches.clear()
      const unconfirmed = [...taken.values()]
      taken.clear()
      for (const queue of new Set(unconfirmed.map((each) => each.queue))) {
        const values = unconfirmed.filter((each) => each.queue === queue).map(({ value }) => value)
        data.queues.putBack(queue, values)
      }
      for (const [key, value] of owned) {
        // Delete only the client's own value: another client may have set the key since.
        if (data.value(key) === value) data.delete(key)
      }
      owned.clear()
    },
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
