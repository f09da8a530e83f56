import { addLabel } from '@tsrun/core'
import { blockUntilSettled, recordSpan } from '../../diagnosis/journal.ts'
import { isCollective, type Operation } from '../../operation.ts'
import type { Runner } from '../../runners/runner.ts'
import type { Ticket, WorkTiming } from '../../ticket.ts'
import type { Call } from './call.ts'
import type { StagedBuffers } from './staging.ts'
import { PendingWork, type Outcome, type StartedWork } from './pending-work.ts'

/** An operation that must complete before its group ends. */
export interface Run {
  readonly call: Call<unknown>
  readonly operation: Operation
  /** The number from `createMessageOrder`; undefined if it is unknown or for a collective. */
  readonly order: number | undefined
  readonly isUnread: boolean
  /** An error with the stack of the call. */
  readonly origin?: Error | undefined
  /** Moves the data that this thread can move. */
  poll(): unknown
  abort(): void
  done(): Promise<unknown>
}

export interface RunOwner {
  readonly runner: Runner
  /** World rank of each member. */
  readonly ranks: readonly number[]
  /** Called when this thread notices the end of a run. */
  onEnd(run: Run, error: Error | undefined): void
}

const NO_TABLE = new Float64Array(0)

export class OperationWork<T> extends PendingWork<T> implements StartedWork<T> {
  readonly #owner: RunOwner
  readonly call: Call<T>
  readonly operation: Operation
  order: number | undefined = undefined
  readonly #ticket: Ticket
  readonly #staged: StagedBuffers
  readonly origin: Error | undefined
  #onAbort: (() => void) | undefined
  #outcome: Outcome<T> | undefined

  constructor(
    owner: RunOwner,
    call: Call<T>,
    operation: Operation,
    ticket: Ticket,
    staged: StagedBuffers,
    origin: Error | undefined,
  ) {
    super()
    this.#owner = owner
    this.call = call
    this.operation = operation
    this.#ticket = ticket
    this.#staged = staged
    this.origin = origin
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

  poll(): Outcome<T> | undefined {
    if (this.#outcome !== undefined) return this.#outcome
    return this.#ticket.poll() ? this.#settle() : undefined
  }

  protected block(): Outcome<T> {
    blockUntilSettled(this.#owner.runner.journal.spans, this.#ticket, this.operation.name)
    return this.#settle()
  }

  #settle(): Outcome<T> {
    if (this.#outcome !== undefined) return this.#outcome
    const { options, resultOf } = this.call
    if (this.#onAbort !== undefined) options?.signal?.removeEventListener('abort', this.#onAbort)
    try {
      const error = endRun(this.#owner, this, this.#ticket, this.#staged)
      if (error === undefined) {
        this.#outcome = { value: resultOf?.(this.#staged.table ?? NO_TABLE) as T }
      } else {
        this.#outcome = { error }
      }
    } catch (thrown) {
      this.#outcome = { error: thrown }
    } finally {
      if (!isHeld(this.#owner.runner, this.operation, this.#ticket)) this.#staged.free()
    }
    return this.#outcome
  }
}

/** Records the end of a run, and copies its result to the caller's buffer. Returns its error. */
export function endRun(
  owner: RunOwner,
  run: Run,
  ticket: Ticket,
  staged: StagedBuffers,
): Error | undefined {
  const { name, options } = run.call
  const { error } = ticket
  owner.onEnd(run, error)
  recordSpan(run, owner, ticket, options?.label)
  if (error !== undefined && options?.label !== undefined) addLabel(error, options.label)
  try {
    if (error === undefined) staged.copyBack(name)
    return error
  } catch (thrown) {
    return thrown as Error
  }
}

/** Whether the operation has failed while libmpi may still access its buffers. */
export function isHeld(
  { transport }: Pick<Runner, 'transport'>,
  operation: Operation,
  ticket: Ticket,
): boolean {
  if (ticket.error === undefined || transport !== 'mpi' || !isCollective(operation)) return false
  const { timing } = ticket
  return timing === undefined || timing.started < timing.completed
}
