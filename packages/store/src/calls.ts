import { tsrError } from '@tsrun/core'
import { amountRule, checkKeys, durationRule, keyRule, toBytes } from './arguments.ts'
import {
  checkRequest,
  isResultOf,
  type Answer,
  type Change,
  type ClientMessage,
  type Operation,
  type Request,
  type Results,
  type ServerMessage,
} from './protocol.ts'
import type { Store, StoreCallOptions } from './store.ts'

/** Default time-out of calls in milliseconds. */
export const DEFAULT_TIMEOUT = 300_000
const LONGEST_TIMER = 0x7fffffff
/** Milliseconds to wait for the answer to a cancellation. */
const CANCEL_GRACE = 5000
const NAMED_KEYS = 16

/** A link to a store: a connection to a server, or a store in this process. */
export interface Link {
  /** Address of the store, for error messages. */
  readonly endpoint: string
  send(message: ClientMessage): void
  /** Tells the link whether calls are pending. */
  setBusy(busy: boolean): void
  close(): Promise<void>
}

/** The outcome of a call: an answer, the end of the link, or no answer in time. */
type Outcome = Answer | { readonly closed: string } | { readonly silent: true }

interface PendingCall {
  readonly id: number
  readonly outcome: Promise<Outcome>
}

/**
 * Implements `Store` over a link: checks the arguments, sends each call as a request, and receives the
 * answers. Any number of calls may be pending, each with its own time-out.
 *
 * @returns the store, and functions to call with each answer and at the end of the link
 */
export function linkedStore(link: Link, defaultTimeout = DEFAULT_TIMEOUT) {
  /** Resolvers of the pending calls, by id. */
  const settlers = new Map<number, (outcome: Outcome) => void>()
  const watchers = new Map<number, (change: Change) => void>()
  let lastId = 0
  let closed: string | undefined

  /** Ends every pending call. Later calls fail with the first `reason`. */
  const lost = (reason: string) => {
    closed ??= reason
    watchers.clear()
    for (const id of [...settlers.keys()]) settle(id, { closed })
  }

  const finish = async <Op extends Operation>(
    operation: Op,
    { id, outcome }: PendingCall,
  ): Promise<Results[Op]> => {
    const timer = startTimer(defaultTimeout, () => {
      settle(id, { silent: true })
    })
    const end = await outcome
    clearTimeout(timer)
    return unwrap(operation, defaultTimeout, end)
  }

  const open = (request: Request) => {
    checkRequest(request)
    if (closed !== undefined) throw closedError(closed)
    const id = ++lastId
    const outcome = new Promise<Outcome>((resolve) => {
      settlers.set(id, resolve)
    })
    if (settlers.size === 1) link.setBusy(true)
    try {
      link.send({ id, ...request })
    } catch (error) {
      settle(id, { silent: true })
      throw error
    }
    return { id, outcome }
  }

  const settle = (id: number, outcome: Outcome) => {
    const resolve = settlers.get(id)
    if (resolve === undefined) return
    settlers.delete(id)
    if (settlers.size === 0) link.setBusy(false)
    resolve(outcome)
  }

  const unwrap = <Op extends Operation>(
    operation: Op,
    milliseconds: number,
    end: Outcome,
  ): Results[Op] => {
    if ('result' in end) {
      if (isResultOf(operation, end.result)) return end.result
      const reason = `it is no result of ${operation}`
      throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: 0, reason })
    }
    if ('closed' in end) throw closedError(end.closed)
    if ('missing' in end) {
      const keys = nameKeys(end.missing)
      throw tsrError('ERR_TSR_STORE_TIMEOUT', { operation, milliseconds, keys })
    }
    if ('silent' in end) {
      const { endpoint } = link
      throw tsrError('ERR_TSR_STORE_UNRESPONSIVE', { endpoint, operation, milliseconds })
    }
    throw tsrError(end.code, end.facts as never)
  }

  const closedError = (reason: string) =>
    tsrError('ERR_TSR_STORE_CLOSED', { endpoint: link.endpoint, reason })

  /** Makes a request that the store answers immediately. */
  const call = async <Op extends Operation>(request: Request & { op: Op }): Promise<Results[Op]> =>
    finish(request.op, open(request))

  /**
   * Makes a request that may wait. At the time-out or abort, the call asks the store to cancel the
   * wait. The answer of the store decides how the call ends, so a value that is already on its way
   * is not lost.
   */
  const wait = async <Op extends 'get' | 'multiGet' | 'wait' | 'queuePop'>(
    request: Request & { op: Op },
    { timeout = defaultTimeout, signal }: StoreCallOptions = {},
  ): Promise<Results[Op]> => {
    durationRule.check('timeout', timeout)
    const throwOnAbort = () => {
      throwIfAborted(`${request.op} on the store`, signal)
    }
    throwOnAbort()
    const { id, outcome } = open(request)
    let grace: NodeJS.Timeout | undefined
    const cancel = () => {
      if (grace !== undefined) return
      link.send({ id, op: 'cancel' })
      grace = startTimer(CANCEL_GRACE, () => {
        settle(id, { silent: true })
      })
    }
    const timer = startTimer(timeout, cancel)
    signal?.addEventListener('abort', cancel)
    const end = await outcome
    clearTimeout(timer)
    clearTimeout(grace)
    signal?.removeEventListener('abort', cancel)
    if ('missing' in end) throwOnAbort()
    if (request.op === 'queuePop' && 'result' in end) link.send({ id, op: 'received' })
    return unwrap(request.op, timeout, end)
  }

  const checked = (key: string, name = 'key') => keyRule.check(name, key)

  const store: Store = {
    set: async (key, value, { timeToLive, whileConnected = false } = {}) => {
      await call({
        op: 'set',
        key: checked(key),
        value: toBytes('value', value),
        ...(whileConnected && { whileConnected }),
        ...(timeToLive !== undefined && {
          timeToLive: durationRule.check('timeToLive', timeToLive),
        }),
      })
    },
    get: async (key, options) => copy(await wait({ op: 'get', key: checked(key) }, options)),
    multiGet: async (keys, options) => {
      const values = await wait({ op: 'multiGet', keys: checkKeys(keys) }, options)
      return values.map(copy)
    },
    wait: async (keys, options) => {
      await wait({ op: 'wait', keys: checkKeys(keys) }, options)
    },
    check: async (keys) => await call({ op: 'check', keys: checkKeys(keys) }),
    add: async (key, amount) =>
      await call({ op: 'add', key: checked(key), amount: amountRule.check('amount', amount) }),
    compareSet: async (key, expected, desired) => {
      const { success, value } = await call({
        op: 'compareSet',
        key: checked(key),
        desired: toBytes('desired', desired),
        ...(expected !== undefined && { expected: toBytes('expected', expected) }),
      })
      return { success, value: value && copy(value) }
    },
    append: async (key, value) =>
      await call({ op: 'append', key: checked(key), value: toBytes('value', value) }),
    delete: async (key) => await call({ op: 'delete', key: checked(key) }),
    list: async (prefix = '') => [...(await call({ op: 'list', key: checked(prefix, 'prefix') }))],
    queuePush: async (queue, value) =>
      await call({
        op: 'queuePush',
        key: checked(queue, 'queue'),
        value: toBytes('value', value),
      }),
    queuePop: async (queue, options) =>
      copy(await wait({ op: 'queuePop', key: checked(queue, 'queue') }, options)),
    queueLength: async (queue) => await call({ op: 'queueLength', key: checked(queue, 'queue') }),
    watch: async (key, listener) => {
      const request = open({ op: 'watch', key: checked(key) })
      const { id } = request
      watchers.set(id, ({ value }) => {
        // Call the listener from a microtask, so that its exceptions do not reach the link.
        queueMicrotask(() => {
          if (watchers.has(id)) listener({ key, value: value && copy(value) })
        })
      })
      try {
        await finish('watch', request)
      } catch (error) {
        watchers.delete(id)
        throw error
      }
      return async () => {
        if (!watchers.delete(id)) return
        await call({ op: 'unwatch', watch: id }).catch((error: unknown) => {
          // Ignore the error if the link has ended, because the end of the link also ends the watch.
          if (closed === undefined) throw error
        })
      }
    },
    close: async () => {
      lost('close() was called')
      await link.close()
    },
  }

  return {
    store,
    receive(message: ServerMessage) {
      if ('changed' in message) watchers.get(message.id)?.(message)
      else if (settlers.has(message.id)) settle(message.id, message)
      // The call has timed out. Still confirm a value from a queue, because the store puts
      // unconfirmed values back.
      else if ('result' in message) link.send({ id: message.id, op: 'received' })
    },
    lost,
  }
}

/** Copies received bytes, because they share memory with a frame or with the store. */
function copy(value: Uint8Array) {
  return new Uint8Array(value)
}

function startTimer(milliseconds: number, callback: () => void): NodeJS.Timeout | undefined {
  if (milliseconds === Infinity) return undefined
  return setTimeout(callback, Math.min(milliseconds, LONGEST_TIMER))
}

/** @throws ERR_TSR_ABORTED */
export function throwIfAborted(what: string, signal: AbortSignal | undefined): void {
  if (signal?.aborted !== true) return
  const cause: unknown = signal.reason
  throw tsrError('ERR_TSR_ABORTED', { what }, { cause })
}

function nameKeys(keys: readonly string[]) {
  const more = keys.length - NAMED_KEYS
  const named = keys.slice(0, NAMED_KEYS).join(', ')
  return more > 0 ? `${named} and ${more} more` : named
}
