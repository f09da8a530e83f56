import { tsrError } from '@tsrun/core'
import { checkDuration } from './arguments.ts'
import { checkRequest } from './limits.ts'
import { PendingCalls, type Outcome, type PendingCall } from './pending-calls.ts'
import type {
  Change,
  ClientMessage,
  Operation,
  Request,
  Results,
  ServerMessage,
} from './requests.ts'
import type { StoreCallOptions } from './store.ts'

const LONGEST_TIMER = 0x7fffffff
/** How long the answer to a cancellation may take, in milliseconds. */
const CANCEL_GRACE = 5000
const NAMED_KEYS = 16

/** The way to a store: a connection, or the data of this process. */
export interface Link {
  /** Where the store is, for error messages. */
  readonly endpoint: string
  send(message: ClientMessage): void
  /** Called when calls are pending and when none are. */
  setBusy(busy: boolean): void
  close(): Promise<void>
}

/** Requests and their answers over one link: any number at once, each with its own time-out. */
export class Calls {
  readonly #link: Link
  readonly #timeout: number
  readonly #pending: PendingCalls
  readonly #watchers = new Map<number, (change: Change) => void>()
  #closed: string | undefined

  constructor(link: Link, timeout: number) {
    checkDuration('timeout', timeout)
    this.#link = link
    this.#timeout = timeout
    this.#pending = new PendingCalls((busy) => {
      link.setBusy(busy)
    })
  }

  receive(message: ServerMessage): void {
    if ('changed' in message) this.#watchers.get(message.id)?.(message)
    else this.#pending.settle(message.id, message)
  }

  /** Ends every pending call; only the first reason counts. */
  lost(reason: string): void {
    this.#closed ??= reason
    this.#watchers.clear()
    this.#pending.settleAll({ closed: this.#closed })
  }

  async close(): Promise<void> {
    this.lost('close() was called')
    await this.#link.close()
  }

  /** A request that the store answers at once. */
  async call<Op extends Operation>(request: Request & { op: Op }): Promise<Results[Op]> {
    return this.#finish(request.op, this.#open(request))
  }

  /**
   * A request that may wait. At its time-out and its abort the store is asked to end the wait, and
   * its answer counts: a value that was just on its way is not lost.
   */
  async wait<Op extends 'get' | 'wait' | 'queuePop'>(
    request: Request & { op: Op },
    options: StoreCallOptions = {},
  ): Promise<Results[Op]> {
    const { timeout = this.#timeout, signal } = options
    checkDuration('timeout', timeout)
    throwIfAborted(request.op, signal)
    const { id, outcome } = this.#open(request)
    let grace: NodeJS.Timeout | undefined
    const cancel = (): void => {
      if (grace !== undefined) return
      this.#link.send({ id, op: 'cancel' })
      grace = startTimer(CANCEL_GRACE, () => {
        this.#pending.settle(id, { silent: true })
      })
    }
    const timer = startTimer(timeout, cancel)
    signal?.addEventListener('abort', cancel)
    const end = await outcome
    clearTimeout(timer)
    clearTimeout(grace)
    signal?.removeEventListener('abort', cancel)
    if ('missing' in end) throwIfAborted(request.op, signal)
    return this.#unwrap(request.op, timeout, end)
  }

  /** Every change reaches `listener`, in order; the returned function ends that. */
  async watch(key: string, listener: (change: Change) => void): Promise<() => Promise<void>> {
    const call = this.#open({ op: 'watch', key })
    const { id } = call
    this.#watchers.set(id, (change) => {
      // An exception of the listener is its own affair: it must not reach the link.
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
      // A watch does not outlive its connection, so a lost one has ended it too.
      if (!('closed' in end)) this.#unwrap('unwatch', this.#timeout, end)
    }
  }

  async #finish<Op extends Operation>(operation: Op, call: PendingCall): Promise<Results[Op]> {
    return this.#unwrap(operation, this.#timeout, await this.#settled(call))
  }

  async #settled({ id, outcome }: PendingCall): Promise<Outcome> {
    const timer = startTimer(this.#timeout, () => {
      this.#pending.settle(id, { silent: true })
    })
    const end = await outcome
    clearTimeout(timer)
    return end
  }

  #open(request: Request): PendingCall {
    checkRequest(request)
    if (this.#closed !== undefined) throw this.#closedError(this.#closed)
    const call = this.#pending.open()
    try {
      this.#link.send({ id: call.id, ...request })
    } catch (error) {
      this.#pending.settle(call.id, { silent: true })
      throw error
    }
    return call
  }

  #unwrap<Op extends Operation>(operation: Op, milliseconds: number, end: Outcome): Results[Op] {
    if ('result' in end) return end.result as Results[Op]
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
  return more > 0 ? `${named} and ${String(more)} more` : named
}
