import { monotonicNow, type TsrError } from '@tsrun/core'
import { NO_PEER, type Departure } from '../../diagnosis/flight-recorder.ts'
import { dtypes } from '../../dtype.ts'
import type { Fingerprint, Operation } from '../../operation.ts'
import type { Ticket, WorkTiming } from '../../ticket.ts'
import type { Form, ShortcutGroup } from './group.ts'

/** Milliseconds after which an operation that is only polled is left to the engine. */
const PATIENCE = 1

/** What runs operations, from the side of one of them. */
interface Owner {
  readonly onStart: (ticket: ShortcutTicket) => void
  readonly onDone: (ticket: ShortcutTicket) => void
  /** Gives the core to others until the operation proceeds, for a moment; returns whether it has. */
  readonly await: (ticket: ShortcutTicket) => boolean
  /** Hands an operation to the engine. */
  readonly submit: (operation: Operation) => Ticket
}

/** The ticket of a small collective that the caller's thread runs, or has left to the engine. */
export class ShortcutTicket implements Ticket, Departure {
  readonly group: ShortcutGroup
  readonly form: Form
  readonly fingerprint: Fingerprint
  readonly peer = NO_PEER
  readonly bytes: number
  operation: Operation
  posted = 0
  completed = 0
  readonly #owner: Owner
  #place: 'here' | 'engine' | 'done' = 'engine'
  /** Of the engine, once it has had this operation. */
  #ticket: Ticket | undefined

  constructor(owner: Owner, group: ShortcutGroup, operation: Operation, form: Form) {
    this.#owner = owner
    this.group = group
    this.form = form
    this.fingerprint = form.fingerprint
    this.bytes = operation.count * dtypes[operation.dtype].bytes
    this.operation = operation
    this.#begin()
  }

  get isSettled(): boolean {
    return this.#place === 'engine' ? this.#ticket!.isSettled : this.#place === 'done'
  }

  get error(): TsrError | undefined {
    return this.#place === 'engine' ? this.#ticket!.error : undefined
  }

  get timing(): WorkTiming | undefined {
    if (this.#place === 'engine') return this.#ticket!.timing
    const { posted, completed } = this
    return this.#place === 'done' ? { posted, started: posted, completed } : undefined
  }

  poll(): boolean {
    if (!this.proceed() && monotonicNow() - this.posted > PATIENCE) this.leaveToEngine()
    return this.#place === 'engine' ? this.#ticket!.poll() : this.#place === 'done'
  }

  onSettled(callback: () => void, isAwaited: boolean): void {
    this.#settleSoon(isAwaited)
    if (this.#place === 'engine') this.#ticket!.onSettled(callback, isAwaited)
    else queueMicrotask(callback)
  }

  block(name: string): void {
    this.#settleSoon(true)
    if (this.#place === 'engine') this.#ticket!.block(name)
  }

  abort(): void {
    this.#settleSoon(false)
    if (this.#place === 'engine') this.#ticket!.abort()
  }

  restart(operation: Operation): void {
    this.operation = operation
    this.#begin()
  }

  proceed(): boolean {
    if (this.#place !== 'here') return true
    const { group } = this
    if (!group.haveArrived()) return false
    if (!group.agree()) {
      // the engine finds out who runs what
      this.leaveToEngine()
      return true
    }
    group.end(this)
    this.#place = 'done'
    this.completed = monotonicNow()
    this.#owner.onDone(this)
    return true
  }

  leaveToEngine(): void {
    this.group.forget()
    this.#submit(true)
  }

  #begin(): void {
    this.posted = monotonicNow()
    if (this.group.begin(this)) {
      this.#place = 'here'
      this.#owner.onStart(this)
    } else {
      this.#submit(false)
    }
  }

  /** Afterwards it is done, or the engine has it. */
  #settleSoon(isAwaited: boolean): void {
    if (this.proceed()) return
    if (!isAwaited || !this.#owner.await(this)) this.leaveToEngine()
  }

  #submit(isPublished: boolean): void {
    const operation = { ...this.operation, isPublished }
    this.#place = 'engine'
    if (this.#ticket === undefined) this.#ticket = this.#owner.submit(operation)
    else this.#ticket.restart(operation)
  }
}
