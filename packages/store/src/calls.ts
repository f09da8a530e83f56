import { tsrError } from '@tsrun/core'
import { durationRule } from './arguments.ts'
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
import type { StoreCallOptions } from './store.ts'

const LONGEST_TIMER = 0x7fffffff
/** Milliseconds to wait for the answer to a cancellation. */
const CANCEL_GRACE = 5000
const NAMED_KEYS = 16

/** A link to a store: a connection, or data of this process. */
export interface Link {
  /** Address of the store, for error messages. */
  readonly endpoint: string
  send(message: ClientMessage): void
  /** Tells the link whether calls are pending. */
  setBusy(busy: boolean): void
  close(): Promise<void>
}

/**
 * How a call ended: with an answer, because the link closed, or because no answer arrived in time.
 */
type Outcome = Answer | { readonly closed: string } | { readonly silent: true }

interface PendingCall {
  readonly id: number
  readonly outcome: Promise<Outcome>
}

export type Calls = ReturnType<typeof createCalls>

/**
 * Sends requests over a link and receives the answers. Any number of calls may be pending, each
 * with its own time-out.
 */
export function createCalls(link: Link, defaultTimeout: number) {
  /** Resolvers of the pending calls, by id. */
  const settlers = new Map<number, (outcome: Outcome) => void>()
  const watchers = new Map<number, (change: Change) => void>()
  let lastId = 0
  let closed: string | undefined

  /** Ends every pending call. Later calls fail with the reason of the first call of `lost`. */
  const lost = (reason: string): void => {
    closed ??= reason
    watchers.clear()
    for (const id of [...settlers.keys()]) settle(id, { closed })
  }

  const finish = async <Op extends Operation>(
    operation: Op,
    call: PendingCall,
  ): Promise<Results[Op]> => unwrap(operation, defaultTimeout, await settled(call))

  const settled = async ({ id, outcome }: PendingCall): Promise<Outcome> => {
    const timer = startTimer(defaultTimeout, () => {
      settle(id, { silent: true })
    })
    const end = await outcome
    clearTimeout(timer)
    return end
  }

  const open = (request: Request): PendingCall => {
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

  const settle = (id: number, outcome: Outcome): void => {
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

  const closedError = (reason: string): Error =>
    tsrError('ERR_TSR_STORE_CLOSED', { endpoint: link.endpoint, reason })

  return {
    receive(message: ServerMessage): void {
      if ('changed' in message) watchers.get(message.id)?.(message)
      else if (settlers.has(message.id)) settle(message.id, message)
      // The call has timed out. Still confirm a value from a queue, because the store puts
      // unconfirmed values back.
      else if ('result' in message) link.send({ id: message.id, op: 'received' })
    },
    lost,
    async close(): Promise<void> {
      lost('close() was called')
      await link.close()
    },
    /** Makes a request that the store answers immediately. */
    async call<Op extends Operation>(request: Request & { op: Op }): Promise<Results[Op]> {
      return finish(request.op, open(request))
    },
    /**
     * Makes a request that may wait. At the time-out or abort, the call asks the store to cancel the
     * wait. The answer of the store decides how the call ends, so a value that is already on its way
     * is not lost.
     */
    async wait<Op extends 'get' | 'multiGet' | 'wait' | 'queuePop'>(
      request: Request & { op: Op },
      options: StoreCallOptions = {},
    ): Promise<Results[Op]> {
      const { timeout = defaultTimeout, signal } = options
      durationRule.check('timeout', timeout)
      const throwOnAbort = (): void => {
        if (signal?.aborted === true) throwIfAborted(`${request.op} on the store`, signal)
      }
      throwOnAbort()
      const { id, outcome } = open(request)
      let grace: NodeJS.Timeout | undefined
      const cancel = (): void => {
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
    },
    /** Calls `listener` at every change of a key, in order, until the returned function is called. */
    async watch(key: string, listener: (change: Change) => void): Promise<() => Promise<void>> {
      const call = open({ op: 'watch', key })
      const { id } = call
      watchers.set(id, (change) => {
        // Call the listener from a microtask, so that its exceptions do not reach the link.
        queueMicrotask(() => {
          if (watchers.has(id)) listener(change)
        })
      })
      try {
        await finish('watch', call)
      } catch (error) {
        watchers.delete(id)
        throw error
      }
      return async () => {
        if (!watchers.delete(id)) return
        const stopped = open({ op: 'unwatch', watch: id })
        const end = await settled(stopped)
        // Nothing to stop if the connection has closed: the watch has ended with it.
        if (!('closed' in end)) unwrap('unwatch', defaultTimeout, end)
      }
    },
  }
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

function nameKeys(keys: readonly string[]): string {
  const more = keys.length - NAMED_KEYS
  const named = keys.slice(0, NAMED_KEYS).join(', ')
  return more > 0 ? `${named} and ${more} more` : named
}
