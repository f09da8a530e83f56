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

/**
 * Sends requests over a link and receives the answers. Any number of calls may be pending, each
 * with its own time-out.
 */
export class Calls {
  readonly #link: Link
  readonly #timeout: number
  /** Resolvers of the pending calls, by id. */
  readonly #settlers = new Map<number, (outcome: Outcome) => void>()
  readonly #watchers = new Map<number, (change: Change) => void>()
  #lastId = 0
  #closed: string | undefined

  constructor(link: Link, timeout: number) {
    this.#link = link
    this.#timeout = timeout
  }

  receive(message: ServerMessage): void {
    if ('changed' in message) this.#watchers.get(message.id)?.(message)
    else if (this.#settlers.has(message.id)) this.#settle(message.id, message)
    // The call has timed out. Still confirm a value from a queue, because the store puts
    // unconfirmed values back.
    else if ('result' in message) this.#link.send({ id: message.id, op: 'received' })
  }

  /** Ends every pending call. Later calls fail with the reason of the first call of `lost`. */
  lost(reason: string): void {
    this.#closed ??= reason
    this.#watchers.clear()
    for (const id of [...this.#settlers.keys()]) this.#settle(id, { closed: this.#closed })
  }

  async close(): Promise<void> {
    this.lost('close() was called')
    await this.#link.close()
  }

  /** Makes a request that the store answers immediately. */
  async call<Op extends Operation>(request: Request & { op: Op }): Promise<Results[Op]> {
    return this.#finish(request.op, this.#open(request))
  }

  /**
   * Makes a request that may wait. At the time-out or abort, the call asks the store to cancel the
   * wait. The answer of the store decides how the call ends, so a value that is already on its way
   * is not lost.
   */
  async wait<Op extends 'get' | 'multiGet' | 'wait' | 'queuePop'>(
    request: Request & { op: Op },
    options: StoreCallOptions = {},
  ): Promise<Results[Op]> {
    const { timeout = this.#timeout, signal } = options
    durationRule.check('timeout', timeout)
    throwIfAborted(request.op, signal)
    const { id, outcome } = this.#open(request)
    let grace: NodeJS.Timeout | undefined
    const cancel = (): void => {
      if (grace !== undefined) return
      this.#link.send({ id, op: 'cancel' })
      grace = startTimer(CANCEL_GRACE, () => {
        this.#settle(id, { silent: true })
      })
    }
    const timer = startTimer(timeout, cancel)
    signal?.addEventListener('abort', cancel)
    const end = await outcome
    clearTimeout(timer)
    clearTimeout(grace)
    signal?.removeEventListener('abort', cancel)
    if ('missing' in end) throwIfAborted(request.op, signal)
    if (request.op === 'queuePop' && 'result' in end) this.#link.send({ id, op: 'received' })
    return this.#unwrap(request.op, timeout, end)
  }

  /** Calls `listener` at every change of a key, in order, until the returned function is called. */
  async watch(key: string, listener: (change: Change) => void): Promise<() => Promise<void>> {
    const call = this.#open({ op: 'watch', key })
    const { id } = call
    this.#watchers.set(id, (change) => {
      // Call the listener from a microtask, so that its exceptions do not reach the link.
      queueMicrotask(() => {
        if (this.#watchers.has(id)) listener(change)
      })
    })
    try {
      await this.#finish('watch', call)
    } catch (error) {
      this.#watchers.delete(id)
      throw error
    }
    return async () => {
      if (!this.#watchers.delete(id)) return
      const stopped = this.#open({ op: 'unwatch', watch: id })
      const end = await this.#settled(stopped)
      // Nothing to stop if the connection has closed: the watch has ended with it.
      if (!('closed' in end)) this.#unwrap('unwatch', this.#timeout, end)
    }
  }

  async #finish<Op extends Operation>(operation: Op, call: PendingCall): Promise<Results[Op]> {
    return this.#unwrap(operation, this.#timeout, await this.#settled(call))
  }

  async #settled({ id, outcome }: PendingCall): Promise<Outcome> {
    const timer = startTimer(this.#timeout, () => {
      this.#settle(id, { silent: true })
    })
    const end = await outcome
    clearTimeout(timer)
    return end
  }

  #open(request: Request): PendingCall {
    checkRequest(request)
    if (this.#closed !== undefined) throw this.#closedError(this.#closed)
    const id = ++this.#lastId
    const outcome = new Promise<Outcome>((resolve) => {
      this.#settlers.set(id, resolve)
    })
    if (this.#settlers.size === 1) this.#link.setBusy(true)
    try {
      this.#link.send({ id, ...request })
    } catch (error) {
      this.#settle(id, { silent: true })
      throw error
    }
    return { id, outcome }
  }

  #settle(id: number, outcome: Outcome): void {
    const resolve = this.#settlers.get(id)
    if (resolve === undefined) return
    this.#settlers.delete(id)
    if (this.#settlers.size === 0) this.#link.setBusy(false)
    resolve(outcome)
  }

  #unwrap<Op extends Operation>(operation: Op, milliseconds: number, end: Outcome): Results[Op] {
    if ('result' in end) {
      if (isResultOf(operation, end.result)) return end.result
      const reason = `it is no result of ${operation}`
      throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: 0, reason })
    }
    if ('closed' in end) throw this.#closedError(end.closed)
    if ('missing' in end) {
      const keys = nameKeys(end.missing)
      throw tsrError('ERR_TSR_STORE_TIMEOUT', { operation, milliseconds, keys })
    }
    if ('silent' in end) {
      const { endpoint } = this.#link
      throw tsrError('ERR_TSR_STORE_UNRESPONSIVE', { endpoint, operation, milliseconds })
    }
    throw tsrError(end.code, end.facts as never)
  }

  #closedError(reason: string): Error {
    return tsrError('ERR_TSR_STORE_CLOSED', { endpoint: this.#link.endpoint, reason })
  }
}

function startTimer(milliseconds: number, callback: () => void): NodeJS.Timeout | undefined {
  if (milliseconds === Infinity) return undefined
  return setTimeout(callback, Math.min(milliseconds, LONGEST_TIMER))
}

function throwIfAborted(operation: Operation, signal: AbortSignal | undefined): void {
  if (signal?.aborted !== true) return
  const cause: unknown = signal.reason
  throw tsrError('ERR_TSR_ABORTED', { what: `${operation} on the store` }, { cause })
}

function nameKeys(keys: readonly string[]): string {
  const more = keys.length - NAMED_KEYS
  const named = keys.slice(0, NAMED_KEYS).join(', ')
  return more > 0 ? `${named} and ${more} more` : named
}
