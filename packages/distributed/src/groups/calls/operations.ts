import { tsrError } from '@tsrun/core'
import { recordSpan } from '../../diagnosis/journal.ts'
import type { AnyTypedArray, DType } from '../../dtype.ts'
import {
  isCollective,
  type AlgorithmName,
  type Operation,
  type OperationName,
} from '../../operation.ts'
import type { Runner } from '../../runners/runner.ts'
import type { Ticket } from '../../ticket.ts'
import type { CallOptions, Work } from '../../process-group.ts'
import type { CheckedReduction } from './reductions.ts'
import { checkTimeout } from './arguments.ts'
import type { GroupIdentity } from '../group.ts'
import { placeOrFree, placeTable } from './staging.ts'
import type { FollowedWork } from './stepped-work.ts'
import { PendingWork } from './work.ts'

/** Milliseconds that `finish` waits for operations under way. */
const FINISH_TIME = 5000

/** A call with checked arguments. */
export interface Call {
  readonly name: OperationName
  readonly dtype: DType
  readonly count: number
  readonly input: AnyTypedArray | undefined
  readonly output: AnyTypedArray | undefined
  readonly peer?: number
  readonly tag?: number
  readonly reduction?: CheckedReduction
  readonly algorithm?: AlgorithmName
  readonly sequence?: number
  /** Numbers for the engine, and room for its answer; see `Operation.table`. */
  readonly table?: readonly number[]
  /** Times the time-out. */
  readonly patience?: number
  readonly onDone?: () => void
  /** At the end in any case, also when the call is refused. */
  readonly onEnd?: () => void
  readonly options: CallOptions | undefined
}

const NO_TABLE = new Float64Array(0)

interface Pending {
  readonly work: Work<unknown>
  readonly abort: () => void
}

/** The operations of one group: places their buffers, submits them, keeps those under way. */
export class Submissions {
  readonly #group: GroupIdentity
  readonly #host: Runner
  readonly #pending = new Set<Pending>()
  #collectives = 0
  #messages = 0
  #finished = false
  /** Number of pending operations at which to look for those that nobody awaits. */
  #sweepAt = 100

  constructor(group: GroupIdentity, host: Runner) {
    this.#group = group
    this.#host = host
  }

  /** Reserves the next `count` positions among the group's collectives. */
  reserveSequences(count: number): number {
    const first = this.#collectives
    this.#collectives += count
    return first
  }

  /** @throws ERR_TSR_GROUP_DESTROYED, ERR_TSR_ARGUMENT, ERR_TSR_ARENA_EXHAUSTED, ERR_TSR_TOO_MANY_OPERATIONS */
  submit(call: Call): FollowedWork<void> {
    return this.submitFor(call, () => undefined)
  }

  /** Like `submit`; the work's result is made of what the engine left in the call's table. */
  submitFor<T>(call: Call, resultOf: (table: Float64Array) => T): FollowedWork<T> {
    try {
      return this.#submit(call, resultOf)
    } catch (error) {
      call.onEnd?.()
      throw error
    }
  }

  /** @throws ERR_TSR_GROUP_DESTROYED */
  checkOpen(operation: string): void {
    const { name: group } = this.#group
    if (this.#finished) throw tsrError('ERR_TSR_GROUP_DESTROYED', { operation, group })
  }

  #submit<T>(call: Call, resultOf: (table: Float64Array) => T): FollowedWork<T> {
    const { name, dtype, count, input, output, options } = call
    const { id } = this.#group
    this.checkOpen(name)
    const timeout = checkTimeout(options?.timeout ?? this.#group.timeout) * (call.patience ?? 1)
    const { arena } = this.#host
    const isMessage = name === 'send' || name === 'recv'
    const table = placeTable(arena, call.table)
    // multiplying happens in place; an input beside the output stays as it is
    const isMultiplied = call.reduction?.name === 'premulSum'
    const [placedInput, placedOutput] = placeOrFree(arena, input, output, table, isMultiplied)
    const free = (): void => {
      placedInput?.free()
      if (placedOutput !== placedInput) placedOutput?.free()
      if (table !== undefined) arena.releaseBytes(table.byteOffset)
    }
    const sequence = isMessage ? this.#messages : (call.sequence ?? this.#collectives)
    const operation: Operation = {
      name,
      group: id,
      sequence,
      dtype,
      reduction: call.reduction?.name ?? 'sum',
      factor: call.reduction?.factor ?? 1,
      deterministic: call.reduction?.deterministic ?? false,
      algorithm: call.algorithm ?? 'auto',
      input: placedInput?.at ?? 0,
      output: placedOutput?.at ?? 0,
      count,
      peer: call.peer ?? 0,
      table: table?.byteOffset ?? 0,
      tag: call.tag ?? 0,
      timeout,
      aborted: options?.signal?.aborted === true,
      isReserved: call.sequence !== undefined,
      flight: this.#host.journal.number(options?.label),
    }
    const ticket = this.#trySubmit(operation, free)
    // counted only now: what the engine refused must not put this rank ahead of the others
    if (isMessage) this.#messages++
    else if (call.sequence === undefined) this.#collectives++
    let entry: Pending | undefined
    const work = new PendingWork<T>({
      operation: name,
      sequence,
      ticket,
      signal: options?.signal,
      finish: (error) => {
        if (entry !== undefined) this.#pending.delete(entry)
        recordSpan(this.#host.journal.spans, operation, this.#group, ticket)
        if (error !== undefined && options?.label !== undefined) {
          error.message = `${options.label}: ${error.message}`
        }
        try {
          if (error === undefined && output !== undefined) placedOutput?.copyBack(name)
          if (error === undefined) call.onDone?.()
          return resultOf(table ?? NO_TABLE)
        } finally {
          if (error === undefined || !isHeld(operation, this.#host, ticket)) {
            free()
            call.onEnd?.()
          }
        }
      },
    })
    if (ticket.isSettled) {
      work.isCompleted()
    } else {
      entry = {
        work,
        abort: () => {
          ticket.abort()
        },
      }
      this.#pending.add(entry)
      if (this.#pending.size > this.#sweepAt) this.#sweep()
    }
    return work
  }

  #trySubmit(operation: Operation, free: () => void): Ticket {
    try {
      return this.#host.submit(operation)
    } catch (error) {
      free()
      throw error
    }
  }

  /** Frees what belongs to operations that have ended and that nobody asked for. */
  #sweep(): void {
    for (const { work } of this.#pending) work.isCompleted()
    this.#sweepAt = 2 * this.#pending.size + 100
  }

  /** Refuses new ones and waits for those under way; what does not end soon is aborted. */
  async finish(): Promise<void> {
    this.#finished = true
    const timer = setTimeout(() => {
      for (const { abort } of this.#pending) abort()
    }, FINISH_TIME)
    await Promise.allSettled([...this.#pending].map(({ work }) => work))
    clearTimeout(timer)
  }
}

/** Whether libmpi may still read and write the buffers of an operation that has failed. */
function isHeld(operation: Operation, { transport }: Runner, { timing }: Ticket): boolean {
  const wasStarted = timing === undefined || timing.started < timing.completed
  return transport === 'mpi' && isCollective(operation) && wasStarted
}
