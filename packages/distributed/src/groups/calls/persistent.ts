import { argumentError, monotonicNow, type TsrError } from '@tsrun/core'
import { blockUntilSettled } from '../../diagnosis/journal.ts'
import type { Operation } from '../../operation.ts'
import type { PersistentOperation } from '../../persistent-operation.ts'
import type { Ticket, WorkTiming } from '../../ticket.ts'
import type { Call } from './call.ts'
import type { StagedBuffers } from './staging.ts'
import { failWithWaitingLine, showWaitingLine } from './waiting-line.ts'
import { endRun, isHeld, type RunOwner } from './work.ts'

/** An operation whose position in the group changes with every start. */
export type Restartable = {
  -readonly [Name in 'sequence' | 'flight' | 'aborted']: Operation[Name]
} & Omit<Operation, 'sequence' | 'flight' | 'aborted'>

interface Owner extends RunOwner {
  keep(run: PreparedOperation): void
  launch(prepared: PreparedOperation, former: Ticket | undefined, isAwaited: boolean): Ticket
}

/** A call with checked arguments and placed buffers, to be run many times. */
export class PreparedOperation implements PersistentOperation {
  readonly call: Call<unknown>
  readonly operation: Restartable
  /** The number from `createMessageOrder`; see `Run`. */
  order: number | undefined = undefined
  readonly #owner: Owner
  readonly #staged: StagedBuffers
  #ticket: Ticket | undefined
  readonly isUnread = false
  #isUnderWay = false
  #isFreed = false
  /** Whether libmpi may still use the staged buffers, so that they can never be freed. */
  #isHeld = false
  #error: Error | undefined
  #ended: Promise<void> | undefined
  #resolve: (() => void) | undefined
  readonly #onAbort = (): void => {
    this.abort()
  }

  constructor(owner: Owner, call: Call<unknown>, operation: Restartable, staged: StagedBuffers) {
    this.#owner = owner
    this.call = call
    this.operation = operation
    this.#staged = staged
    call.options?.signal?.addEventListener('abort', this.#onAbort)
  }

  start(): void {
    this.#begin(false)
    this.#owner.keep(this)
  }

  /** Starts the operation and blocks until it has ended. */
  runSync(): void {
    this.#begin(true)
    if (this.isCompleted()) {
      this.#throwError()
      return
    }
    try {
      this.wait()
    } catch (error) {
      if (this.#isUnderWay) this.#owner.keep(this)
      throw error
    }
  }

  get prefersRun(): boolean {
    return this.#owner.runner.prefersCaller(this.operation)
  }

  async run(): Promise<void> {
    this.#begin(true)
    this.#owner.keep(this)
    this.#ticket!.spinBriefly()
    await this.done()
  }

  #begin(isAwaited: boolean): void {
    if (this.#isFreed) throw this.#refusal('one that free() has ended', 'a new one')
    if (this.#isUnderWay && !this.isCompleted()) {
      throw this.#refusal('one that is under way', 'to be started again after wait() or done()')
    }
    this.#throwError()
    const { spans } = this.#owner.runner.journal
    const called = spans === undefined ? 0 : monotonicNow()
    this.#staged.refill(this.call)
    this.#ticket = this.#owner.launch(this, this.#ticket, isAwaited)
    this.#isUnderWay = true
    if (spans === undefined) return
    const name = this.call.options?.label ?? this.call.name
    spans.record('call', called, monotonicNow(), { name })
  }

  wait(): void {
    if (this.#isUnderWay) {
      blockUntilSettled(this.#owner.runner.journal.spans, this.#ticket!, this.call.name)
      this.#settle()
    }
    this.#throwError()
  }

  async done(): Promise<void> {
    if (this.#isUnderWay) {
      this.#ended ??= new Promise((resolve) => {
        this.#resolve = resolve
        this.#ticket!.onSettled(() => {
          // Another run may have started in the meantime.
          if (this.#ticket!.isSettled) this.#settle()
        }, true)
      })
      await this.#ended
    }
    const error = this.#error
    this.#error = undefined
    if (error !== undefined) await failWithWaitingLine(error)
  }

  isCompleted(): boolean {
    if (this.#isUnderWay && this.#ticket!.poll()) this.#settle()
    return !this.#isUnderWay
  }

  poll(): boolean {
    return this.isCompleted()
  }

  get timing(): WorkTiming | undefined {
    return this.#ticket?.timing
  }

  abort(): void {
    if (this.#isUnderWay) this.#ticket!.abort()
  }

  free(): void {
    if (this.#isFreed) return
    if (!this.isCompleted()) throw this.#refusal('one that is under way', 'one that has ended')
    this.#isFreed = true
    this.call.options?.signal?.removeEventListener('abort', this.#onAbort)
    if (!this.#isHeld) this.#staged.free()
  }

  #settle(): void {
    if (!this.#isUnderWay) return
    const ticket = this.#ticket!
    this.#isUnderWay = false
    this.#error = endRun(this.#owner, this, ticket, this.#staged)
    this.#isHeld ||= isHeld(this.#owner.runner, this.operation, ticket)
    this.#resolve?.()
    this.#ended = this.#resolve = undefined
  }

  #throwError(): void {
    const error = this.#error
    if (error === undefined) return
    this.#error = undefined
    showWaitingLine(error)
    throw error
  }

  #refusal(value: string, expected: string): TsrError {
    return argumentError(`the prepared ${this.call.name}`, value, expected)
  }
}
