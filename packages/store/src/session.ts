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
  totalBytes,
  VALUE_LIMIT,
} from './protocol.ts'

type Result = Results[keyof Results]

/** Maximum bytes of the keys that a client waits for or watches, with their overhead. */
const WAITING_LIMIT = 64 * 1024 * 1024

/** Sends messages to a client. */
export interface Outlet {
  send(message: ServerMessage): void
  /** True if too many bytes are unsent. Answers then wait until the session is resumed (`resume`). */
  isFull(): boolean
}

/** A pending wait or a watch of a client. */
interface Held {
  /** Bytes of the keys, which count towards WAITING_LIMIT. */
  readonly cost: number
  /** Undefined once the wait has ended. */
  wait?: Wait | undefined
  stopWatch?: () => void
}

/** Serves the requests of one client. When the client disconnects, its waits and watches end. */
export function createSession(data: StoreData, outlet: Outlet) {
  /** The waits and watches, by the id of the request. */
  const held = new Map<number, Held>()
  let waiting = 0
  /** Finished waits whose answers are delayed by back-pressure, by the id of the request. */
  const delayed = new Map<number, () => void>()
  /** Values that the client has taken from queues but not confirmed, by the id of the request. */
  const taken = new Map<number, { readonly queue: string; readonly value: Uint8Array }>()
  /** Keys to delete when this client disconnects, with the values that the client has set. */
  const owned = new Map<string, Uint8Array>()

  const answer = (id: number, message: Answer) => {
    outlet.send({ id, ...message })
  }

  const orFail = (id: number, action: () => void) => {
    try {
      action()
    } catch (error) {
      const what = `the store failed: ${String(error)}`
      const { code, facts } = isTsrError(error) ? error : tsrError('ERR_TSR_INTERNAL', { what })
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

  const set = ({ key, value, timeToLive, whileConnected }: Request & { op: 'set' }) => {
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
    const retry = () => {
      const found = awaitKeys(id, keys, result)
      if (found !== undefined) answer(id, { result: found })
    }
    const own = take(id, keys)
    own.wait = data.waiters.add(keys, missing, () => {
      // Keep no values while the client is slow. Once the client has caught up, read the keys
      // again, or wait again. Catch exceptions: they would reach the client that set the last key.
      if (outlet.isFull()) {
        own.wait = undefined
        delayed.set(id, retry)
        return
      }
      release(id)
      orFail(id, retry)
    })
    return undefined
  }

  const pop = (id: number, queue: string): Uint8Array | undefined => {
    const value = data.queues.take(queue)
    if (value === undefined) {
      take(id, [queue]).wait = data.queues.await(queue, (next) => {
        release(id)
        taken.set(id, { queue, value: next })
        answer(id, { result: next })
      })
    } else {
      taken.set(id, { queue, value })
    }
    return value
  }

  const watch = (id: number, key: string) => {
    take(id, [key]).stopWatch = data.watch(key, (value) => {
      outlet.send(value === undefined ? { id, changed: true } : { id, changed: true, value })
    })
  }

  const unwatch = (id: number) => {
    const stop = held.get(id)?.stopWatch
    if (stop === undefined) return
    stop()
    release(id)
  }

  /** Cancels a wait. Does nothing for a call that was already answered. */
  const cancel = (id: number) => {
    const wait = held.get(id)?.wait
    if (wait === undefined) return
    wait.cancel()
    release(id)
    answer(id, { missing: [...wait.missing] })
  }

  /** @throws ERR_TSR_STORE_LIMIT */
  const take = (id: number, keys: readonly string[]): Held => {
    const cost = keys.reduce((sum, key) => sum + costOf(key), 0)
    checkLimit('What the client waits for', waiting + cost, WAITING_LIMIT)
    waiting += cost
    const own = { cost }
    held.set(id, own)
    return own
  }

  const release = (id: number) => {
    waiting -= held.get(id)?.cost ?? 0
    held.delete(id)
  }

  return {
    handle: ({ id, ...message }: ClientMessage) => {
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
        if (held.has(id) || taken.has(id)) {
          const reason = `the client has another pending request with the number ${id}`
          throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: 0, reason })
        }
        checkRequest(message)
        const result = run(id, message)
        if (result !== undefined) answer(id, { result })
      })
    },
    /** Sends the answers that back-pressure has delayed. */
    resume() {
      for (const [id, retry] of delayed) {
        if (outlet.isFull()) return
        delayed.delete(id)
        release(id)
        orFail(id, retry)
      }
    },
    close() {
      for (const { wait, stopWatch } of held.values()) {
        wait?.cancel()
        stopWatch?.()
      }
      held.clear()
      delayed.clear()
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
function valuesOf(data: StoreData, keys: readonly string[]) {
  const values = keys.map((key) => data.value(key) ?? new Uint8Array(0))
  checkLimit('The values together', totalBytes(values), VALUE_LIMIT)
  return values
}
