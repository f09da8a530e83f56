import type { TsrError } from '@tsrun/core'
import { blockUntilSettled, recordSpan } from '../../diagnosis/journal.ts'
import { isCollective, type Operation } from '../../operation.ts'
import type { Runner } from '../../runners/runner.ts'
import type { Ticket, WorkTiming } from '../../ticket.ts'
import type { CallOptions } from '../../call-options.ts'
import type { Call } from './call.ts'
import type { StagedBuffers } from './staging.ts'
import { PendingWork, type Outcome } from './pending-work.ts'

interface Owner {
  readonly runner: Runner
  /** World rank of each member. */
  readonly ranks: readonly number[]
  /** Called once, when this thread notices that the operation has ended. */
  onEnd(work: OperationWork<unknown>): void
}

const NO_TABLE = new Float64Array(0)

export class OperationWork<T> extends PendingWork<T> {
  readonly #owner: Owner
  readonly #call: Call<T>
  readonly operation: Operation
  /**
   * Number of the message in its series, from `MessageOrder`; undefined if unknown or not a
   * message.
   */
  order: number | undefined = undefined
  readonly #ticket: Ticket
  readonly #staged: StagedBuffers
  #onAbort: (() => void) | undefined
  #outcome: Outcome<T> | undefined

  constructor(
    owner: Owner,
    call: Call<T>,
    operation: Operation,
    ticket: Ticket,
    staged: StagedBuffers,
  ) {
    super()
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

  get timing(): WorkTiming | undefined {
    return this.#ticket.timing
  }

  abort(): void {
    this.#ticket.abort()
  }

  follow(callback: () => void, isAwaited = false): void {
    this.#ticket.onSettled(callback, isAwaited)
  }

  protected poll(): Outcome<T> | undefined {
    if (this.#outcome !== undefined) return this.#outcome
    return this.#ticket.poll() ? this.#settle() : undefined
  }

  protected block(): Outcome<T> {
    blockUntilSettled(this.#owner.runner.journal.spans, this.#ticket, this.operation.name)
    return this.#settle()
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

/**
 * Prefixes the message and the stack of an error with the label of the call, and adds the label to
 * its facts.
 */
export function addLabel(error: TsrError | undefined, options: CallOptions | undefined): void {
  if (error === undefined || options?.label === undefined) return
  const { message, facts, stack } = error
  const { label } = options
  error.message = `${label}: ${message}`
  if (stack !== undefined) error.stack = stack.replace(message, () => error.message)
  Object.assign(error, { facts: { ...facts, label } })
}

/** Whether the operation has failed while libmpi may still access its buffers. */
export function isHeld(
  { transport }: Pick<Runner, 'transport'>,
  operation: Operation,
  { error, timing }: Ticket,
): boolean {
  if (error === undefined || transport !== 'mpi' || !isCollective(operation)) return false
  return timing === undefined || timing.started < timing.completed
}
