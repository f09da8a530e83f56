import { monotonicNow, type TsrError } from '@tsrun/core'
import { NO_PEER, type Departure } from '../../diagnosis/flight-recorder.ts'
import { dtypes } from '../../dtype.ts'
import type { WindowRun } from '../../engine/window-run.ts'
import type { Fingerprint, Operation } from '../../operation.ts'
import type { Ticket, WorkTiming } from '../../ticket.ts'
import type { FlatPlan } from '../../algorithms/flat.ts'
import type { Form, ShortcutGroup } from './group.ts'

/** Milliseconds after which an operation that is only polled is left to the engine. */
const PATIENCE = 1

/** What runs operations, from the side of one of them. */
interface Owner {
  readonly onStart: (ticket: ShortcutTicket) => void
  readonly onDone: (ticket: ShortcutTicket) => void
  /** Offset of scratch for a large operation; undefined where there is no room. */
  readonly takeScratch: () => number | undefined
  readonly releaseScratch: (at: number) => void
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
  /** Of a large one that is on its way here. */
  #window: WindowRun | undefined
  #scratch: number | undefined
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

  linger(): void {
    this.#settleSoon(true)
    if (this.#place === 'engine') this.#ticket!.linger()
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
    if (!(this.form.plan === undefined ? this.#continue() : this.#take(this.form.plan))) {
      // the engine has it, if the ranks run different things: it finds out who runs what
      return this.#isElsewhere
    }
    this.#place = 'done'
    this.completed = monotonicNow()
    this.#owner.onDone(this)
    return true
  }

  leaveToEngine(): void {
    const { begun } = this
    this.#closeWindow()
    this.group.forget()
    this.#submit(begun)
  }

  /** See `Operation`. */
  get begun(): number {
    return this.#window?.begun ?? 1
  }

  get #isElsewhere(): boolean {
    return this.#place !== 'here'
  }

  #begin(): void {
    const { group, operation, form } = this
    this.posted = monotonicNow()
    if (!group.isFreeFor(operation) || (form.plan === undefined && !this.#hasScratch())) {
      this.#submit(0)
      return
    }
    this.#place = 'here'
    this.#owner.onStart(this)
    if (form.plan === undefined) this.#openWindow()
    else group.publish(this, form.plan)
  }

  /** A small one: whether all ranks have come, so that it is over. */
  #take(plan: FlatPlan): boolean {
    const { group } = this
    if (!group.haveArrived()) return false
    if (!group.agree()) {
      this.leaveToEngine()
      return false
    }
    group.take(this, plan)
    return true
  }

  #hasScratch(): boolean {
    this.#scratch = this.#owner.takeScratch()
    return this.#scratch !== undefined
  }

  #openWindow(): void {
    let next = this.#scratch!
    this.#window = this.group.openWindow(this, (bytes) => {
      next += bytes
      return next - bytes
    })
    this.proceed()
  }

  /** A large one: whether it is over. */
  #continue(): boolean {
    if (this.#window!.next().done !== true) return false
    this.#closeWindow()
    this.group.forget()
    return true
  }

  #closeWindow(): void {
    this.#window = undefined
    if (this.#scratch !== undefined) this.#owner.releaseScratch(this.#scratch)
    this.#scratch = undefined
  }

  /** Afterwards it is done, or the engine has it. */
  #settleSoon(isAwaited: boolean): void {
    if (this.proceed()) return
    if (!isAwaited || !this.#owner.await(this)) this.leaveToEngine()
  }

  #submit(begun: number): void {
    const operation = { ...this.operation, begun }
    this.#place = 'engine'
    if (this.#ticket === undefined) this.#ticket = this.#owner.submit(operation)
    else this.#ticket.restart(operation)
  }
}
