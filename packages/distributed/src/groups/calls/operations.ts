import { tsrError } from '@tsrun/core'
import type { Arena } from '../../arena/arena.ts'
import type { AnyTypedArray, DType } from '../../dtype.ts'
import type { AlgorithmName, Operation, OperationName } from '../../operation.ts'
import type { Runner } from '../../runners/runner.ts'
import type { CallOptions } from '../../process-group.ts'
import { checkOptionNames, checkTimeout, type CheckedReduction } from './arguments.ts'
import { SelfMessages } from './self-messages.ts'
import { StagedBuffers } from './staging.ts'
import { OperationWork, type FollowedWork } from './work.ts'

/** Milliseconds that `finish` waits for operations under way. */
const FINISH_TIME = 5000

/** A call with checked arguments. */
export interface Call<T = void> {
  readonly name: OperationName
  readonly dtype: DType
  readonly count: number
  readonly input: AnyTypedArray | undefined
  readonly output: AnyTypedArray | undefined
  readonly peer?: number
  readonly tag?: number
  readonly reduction?: CheckedReduction
  readonly algorithm?: AlgorithmName
  /** A reserved position among the group's collectives. Default: the next one. */
  readonly sequence?: number
  /** Numbers for the engine, and room for its answer; see `Operation.table`. */
  readonly table?: readonly number[]
  /** The time-out is multiplied by it. */
  readonly patience?: number
  /** What the call resolves to, by what the engine left in the table. Default: undefined. */
  readonly resultOf?: (table: Float64Array) => T
  /** Called when the operation has succeeded. */
  readonly onDone?: () => void
  /** Called at the end in any case, also when the call is refused. */
  readonly onEnd?: () => void
  readonly options: CallOptions | undefined
  /** Kept from garbage collection until the operation has ended. */
  readonly held?: unknown
}

/** Starts calls. */
export interface Starter {
  readonly arena: Arena
  start<T>(call: Call<T>): FollowedWork<T>
}

/** How a group is known to its engine, and to its own ranks. */
export interface GroupIdentity {
  readonly id: number
  readonly name: string
  /** Rank of this process in the group. */
  readonly rank: number
  /** World rank of each member. */
  readonly ranks: readonly number[]
  /** Default time-out in milliseconds. */
  readonly timeout: number
}

/** The operations of one group: stages their buffers, starts them, and keeps those under way. */
export class Operations implements Starter {
  readonly runner: Runner
  readonly #group: GroupIdentity
  readonly #self: SelfMessages
  readonly #pending = new Set<OperationWork<unknown>>()
  #collectives = 0
  #messages = 0
  #isFinished = false
  /** Number of pending operations at which to look for those that nobody awaits. */
  #sweepAt = 100

  constructor(group: GroupIdentity, runner: Runner) {
    this.#group = group
    this.runner = runner
    this.#self = new SelfMessages(group)
  }

  get arena(): Arena {
    return this.runner.arena
  }

  get ranks(): readonly number[] {
    return this.#group.ranks
  }

  /** Reserves the next `count` positions among the group's collectives; returns the first. */
  reserve(count: number): number {
    const first = this.#collectives
    this.#collectives += count
    return first
  }

  /**
   * Starts a checked call.
   *
   * @throws ERR_TSR_GROUP_DESTROYED, ERR_TSR_ARGUMENT, ERR_TSR_ARENA_EXHAUSTED,
   *   ERR_TSR_TOO_MANY_OPERATIONS
   */
  start<T>(call: Call<T>): FollowedWork<T> {
    const { name, options, reduction } = call
    const { id, rank, name: group } = this.#group
    let staged: StagedBuffers | undefined
    try {
      if (this.#isFinished) throw tsrError('ERR_TSR_GROUP_DESTROYED', { operation: name, group })
      if (options !== undefined) checkOptionNames(options)
      const timeout = checkTimeout(options?.timeout, this.#group.timeout) * (call.patience ?? 1)
      const isMessage = name === 'send' || name === 'recv'
      if (isMessage && call.peer === rank) return this.#self.start(call, timeout)
      // the multiplication happens in place; an input beside the output must stay as it is
      staged = new StagedBuffers(this.arena, call, reduction?.name === 'premulSum')
      const operation: Operation = {
        name,
        group: id,
        sequence: isMessage ? this.#messages : (call.sequence ?? this.#collectives),
        dtype: call.dtype,
        reduction: reduction?.name ?? 'sum',
        factor: reduction?.factor ?? 1,
        deterministic: reduction?.deterministic ?? false,
        algorithm: call.algorithm ?? 'auto',
        input: staged.input,
        output: staged.output,
        count: call.count,
        peer: call.peer ?? 0,
        table: staged.table?.byteOffset ?? 0,
        tag: call.tag ?? 0,
        timeout,
        aborted: options?.signal?.aborted === true,
        isReserved: call.sequence !== undefined,
        flight: this.runner.journal.number(options?.label),
      }
      const ticket = this.runner.submit(operation)
      // counted only now: what the engine refused must not put this rank ahead of the others
      if (isMessage) this.#messages++
      else if (call.sequence === undefined) this.#collectives++
      const work = new OperationWork<T>(this, call, operation, ticket, staged)
      if (ticket.isSettled) work.isCompleted()
      else this.#keep(work)
      return work
    } catch (error) {
      staged?.free()
      call.onEnd?.()
      throw error
    }
  }

  /** Refuses further calls and waits for the operations under way; it aborts those that take long. */
  async finish(): Promise<void> {
    this.#isFinished = true
    this.#self.finish()
    const timer = setTimeout(() => {
      for (const work of this.#pending) work.abort()
    }, FINISH_TIME)
    await Promise.allSettled(this.#pending)
    clearTimeout(timer)
  }

  onEnd(work: OperationWork<unknown>): void {
    this.#pending.delete(work)
  }

  #keep(work: OperationWork<unknown>): void {
    this.#pending.add(work)
    if (this.#pending.size <= this.#sweepAt) return
    // frees what belongs to operations that have ended and that nobody awaits
    for (const each of this.#pending) each.isCompleted()
    this.#sweepAt = 2 * this.#pending.size + 100
  }
}
