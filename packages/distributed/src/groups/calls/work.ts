import { monotonicNow, type TsrError } from '@tsrun/core'
import { blockUntilSettled, recordSpan } from '../../diagnosis/journal.ts'
import { isCollective, type Operation } from '../../operation.ts'
import type { Runner } from '../../runners/runner.ts'
import type { Ticket, WorkTiming } from '../../ticket.ts'
import type { CallOptions, Work } from '../../process-group.ts'
import type { Call } from './operations.ts'
import type { StagedBuffers } from './staging.ts'
import { failWithWaitingLine, showWaitingLine } from './waiting-line.ts'

/** A work that others are made of. */
export interface FollowedWork<T> extends Work<T> {
  /** Calls back once it is completed; unlike `then`, it does not keep the process alive. */
  follow(callback: () => void): void
}

export type Outcome<T> = { readonly value: T } | { readonly error: unknown }

/** The operations that a work belongs to. */
interface Owner {
  readonly runner: Runner
  /** World rank of each member. */
  readonly ranks: readonly number[]
  /** Called once, when the end of the operation is seen. */
  onEnd(work: OperationWork<unknown>): void
}

const NO_TABLE = new Float64Array(0)

/** The `Work` of one operation of an engine. */
export class OperationWork<T> implements FollowedWork<T> {
  readonly #owner: Owner
  readonly #call: Call<T>
  readonly operation: Operation
  /** See `MessageOrder`. */
  order: number | undefined = undefined
  readonly #ticket: Ticket
  readonly #staged: StagedBuffers
  readonly #called = monotonicNow()
  #onAbort: (() => void) | undefined
  #promise: Promise<T> | undefined
  #outcome: Outcome<T> | undefined

  constructor(
    owner: Owner,
    call: Call<T>,
    operation: Operation,
    ticket: Ticket,
    staged: StagedBuffers,
  ) {
    this.#owner = owner
    this.#call = call
    this.operation = operation
    this.#ticket = ticket
    this.#staged = staged
    const signal = call.options?.signal
    if (signal !== undefined) {
      this.#onAbort = () => {
        ticket.abort()
      }
      signal.addEventListener('abort', this.#onAbort, { once: true })
    }
  }

  get sequence(): number {
    return this.operation.sequence
  }

  get elapsed(): number {
    return (this.timing?.completed ?? monotonicNow()) - this.#called
  }

  get timing(): WorkTiming | undefined {
    return this.#ticket.timing
  }

  isCompleted(): boolean {
    if (!this.#ticket.poll()) return false
    this.#settle()
    return true
  }

  wait(): T {
    blockUntilSettled(this.#owner.runner.journal.spans, this.#ticket, this.operation.name)
    const outcome = this.#settle()
    if ('error' in outcome) {
      showWaitingLine(outcome.error)
      throw outcome.error
    }
    return outcome.value
  }

  follow(callback: () => void): void {
    this.#ticket.onSettled(callback, false)
  }

  then<Result = T, Failure = never>(
    onFulfilled?: ((value: T) => Result | PromiseLike<Result>) | null,
    onRejected?: ((reason: unknown) => Failure | PromiseLike<Failure>) | null,
  ): Promise<Result | Failure> {
    this.#promise ??= new Promise<T>((resolve) => {
      this.#ticket.onSettled(() => {
        const outcome = this.#settle()
        if ('error' in outcome) resolve(failWithWaitingLine(outcome.error))
        else resolve(outcome.value)
      }, true)
    })
    return this.#promise.then(onFulfilled, onRejected)
  }

  abort(): void {
    this.#ticket.abort()
  }

  async done(): Promise<T> {
    return await this
  }

  #settle(): Outcome<T> {
    if (this.#outcome !== undefined) return this.#outcome
    const { error } = this.#ticket
    this.#owner.onEnd(this)
    const { spans } = this.#owner.runner.journal
    recordSpan(spans, this, this.#owner, this.#ticket, this.#call.options?.label)
    try {
      const value = this.#finish(error)
      this.#outcome = error === undefined ? { value } : { error }
    } catch (thrown) {
      this.#outcome = { error: thrown }
    }
    return this.#outcome
  }

  /** Hands over the result and frees the staging. */
  #finish(error: TsrError | undefined): T {
    const { name, options, onDone, onEnd, resultOf } = this.#call
    if (this.#onAbort !== undefined) options?.signal?.removeEventListener('abort', this.#onAbort)
    addLabel(error, options)
    try {
      if (error === undefined) {
        this.#staged.copyBack(name)
        onDone?.()
      }
      return resultOf?.(this.#staged.table ?? NO_TABLE) as T
    } finally {
      if (!isHeld(this.#owner.runner, this.operation, this.#ticket)) {
        this.#staged.free()
        onEnd?.()
      }
    }
  }
}

/** An error of an operation, and its stack, begin with the label of the call; its facts have it, too. */
export function addLabel(error: TsrError | undefined, options: CallOptions | undefined): void {
  if (error === undefined || options?.label === undefined) return
  const { message, facts, stack } = error
  const { label } = options
  error.message = `${label}: ${message}`
  if (stack !== undefined) error.stack = stack.replace(message, () => error.message)
  Object.assign(error, { facts: { ...facts, label } })
}

/** Whether the operation has failed, and libmpi may still read and write its buffers. */
export function isHeld(
  { transport }: Pick<Runner, 'transport'>,
  operation: Operation,
  { error, timing }: Ticket,
): boolean {
  if (error === undefined || transport !== 'mpi' || !isCollective(operation)) return false
  return timing === undefined || timing.started < timing.completed
}
