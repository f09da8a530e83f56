import { argumentError, isTsrError, monotonicNow, tsrError } from '@tsrun/core'
import type { Arena } from '../../arena/arena.ts'
import { isCollective, type Operation, type OperationName } from '../../operation.ts'
import type { Runner } from '../../runners/runner.ts'
import { Ticket } from '../../ticket.ts'
import { checkAlgorithm, checkOptionNames, checkTimeout } from './arguments.ts'
import { MessageOrder } from './message-order.ts'
import { PreparedOperation, type Restartable } from './persistent.ts'
import { RepeatedCalls } from './repeated-calls.ts'
import { createSelfMessages, describeCall } from './self-messages.ts'
import { StagedBuffers } from './staging.ts'
import type { Call, Starter, StartMode } from './call.ts'
import type { FollowedWork } from './pending-work.ts'
import { showWaitingLine } from './waiting-line.ts'
import { OperationWork, type Run } from './work.ts'

/** Milliseconds for which `finish` waits for pending operations. */
const FINISH_TIME = 5000
/** How many of a group's first operations keep the stack of their call, for `unreadError`. */
const KEPT_STACKS = 100

function isMessageName(name: OperationName): boolean {
  return name === 'send' || name === 'recv'
}

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

/** Stages the buffers of a group's operations, starts them, and tracks the pending ones. */
export class Operations implements Starter {
  readonly runner: Runner
  readonly repeated: RepeatedCalls
  readonly #group: GroupIdentity
  readonly #self: ReturnType<typeof createSelfMessages>
  readonly #pending = new Set<Run>()
  readonly #order = new MessageOrder()
  #collectives = 0
  #messages = 0
  #isFinished = false
  /** An operation whose result nobody has read. */
  #unread: Run | undefined
  /** A collective that has failed, though nobody has waited for it. */
  #failed: { readonly run: Run; readonly error: Error } | undefined
  /** Whether an error has reached a caller. Then `unreadError` reports nothing. */
  #isErrorRead = false
  #mode: StartMode = 'started'
  /**
   * With this many pending operations, completed operations are removed even if nobody has awaited
   * them.
   */
  #sweepAt = 100

  constructor(group: GroupIdentity, runner: Runner) {
    this.#group = group
    this.runner = runner
    this.repeated = new RepeatedCalls(runner.arena)
    this.#self = createSelfMessages(group)
  }

  get arena(): Arena {
    return this.runner.arena
  }

  get isFake(): boolean {
    return this.runner.transport === 'none'
  }

  get ranks(): readonly number[] {
    return this.#group.ranks
  }

  /** Reserves the next `count` positions among the group's collectives and returns the first. */
  reserve(count: number): number {
    const first = this.#collectives
    this.#collectives += count
    return first
  }

  /**
   * Starts or prepares a checked call.
   *
   * @throws ERR_TSR_GROUP_DESTROYED, ERR_TSR_ARGUMENT, ERR_TSR_ARENA_EXHAUSTED,
   *   ERR_TSR_TOO_MANY_OPERATIONS
   */
  start<T>(call: Call<T>): FollowedWork<T> {
    if (this.#mode === 'prepared') {
      // A getter of the options may make another call, which is to be started.
      this.#mode = 'started'
      return this.#prepare(call) as unknown as FollowedWork<T>
    }
    const { name, options, reduction } = call
    const { spans } = this.runner.journal
    const called = spans === undefined ? 0 : monotonicNow()
    let staged: StagedBuffers | undefined
    try {
      const timeout = this.#check(call)
      if (this.#isToSelf(call)) return this.#self.start(call, timeout)
      // The engine multiplies in place, so copy the input unless it is also the output.
      staged = new StagedBuffers(this.arena, call, reduction?.name === 'premulSum')
      const operation = this.#operationOf(call, staged, timeout)
      const ticket = this.#run(call, operation, this.#mode === 'awaited')
      const isEarly = this.#collectives + this.#messages <= KEPT_STACKS
      const origin = isEarly ? new Error() : undefined
      const work = new OperationWork<T>(this, call, operation, ticket, staged, origin)
      work.order = this.#orderOf(operation)
      spans?.record('call', called, monotonicNow(), { name: options?.label ?? name })
      if (ticket.isSettled) work.poll()
      else this.keep(work)
      return work
    } catch (error) {
      staged?.free()
      call.onEnd?.()
      throw error
    }
  }

  inMode<T>(mode: StartMode, run: () => T): T {
    const former = this.#mode
    this.#mode = mode
    try {
      return run()
    } finally {
      this.#mode = former
    }
  }

  /** Checks a call and places its buffers once, for many runs. */
  #prepare(call: Call<unknown>): PreparedOperation {
    const timeout = this.#check(call)
    if (this.#isToSelf(call)) {
      throw argumentError(
        'peer',
        String(call.peer),
        'another rank: a message to oneself needs no preparation',
      )
    }
    const staged = new StagedBuffers(this.arena, call, call.reduction?.name === 'premulSum')
    try {
      return new PreparedOperation(this, call, this.#operationOf(call, staged, timeout), staged)
    } catch (error) {
      staged.free()
      throw error
    }
  }

  /** Starts a run of a prepared operation. */
  launch(prepared: PreparedOperation, former: Ticket | undefined, isAwaited: boolean): Ticket {
    const { call, operation } = prepared
    if (this.#isFinished) this.#refuse(call.name)
    operation.aborted = call.options?.signal?.aborted === true
    const ticket = this.#run(call, operation, isAwaited, former)
    prepared.order = this.#orderOf(operation)
    return ticket
  }

  #isToSelf({ name, peer }: Call<unknown>): boolean {
    return isMessageName(name) && peer === this.#group.rank
  }

  /** Assigns the next position to the operation and starts it. */
  #run(call: Call<unknown>, operation: Restartable, isAwaited: boolean, former?: Ticket): Ticket {
    const isMessage = isMessageName(call.name)
    operation.sequence = isMessage ? this.#messages : (call.sequence ?? this.#collectives)
    operation.flight = this.runner.journal.number(call.options?.label)
    const driver = this.runner.driverOf(operation, isAwaited)
    const ticket = former ?? new Ticket(driver, operation)
    driver.start(ticket, operation, isAwaited)
    // Count only accepted operations. Otherwise a refused call would put this rank ahead of the
    // others.
    if (isMessage) this.#messages++
    else if (call.sequence === undefined) this.#collectives++
    return ticket
  }

  #orderOf(operation: Operation): number | undefined {
    const isCounted = this.runner.journal.spans !== undefined && isMessageName(operation.name)
    return isCounted ? this.#order.next(operation) : undefined
  }

  /** @returns the time-out in milliseconds */
  #check({ name, options, patience = 1 }: Call<unknown>): number {
    if (this.#isFinished) this.#refuse(name)
    if (options !== undefined) checkOptionNames(options)
    return checkTimeout(options?.timeout, this.#group.timeout) * patience
  }

  #refuse(operation: string): never {
    throw tsrError('ERR_TSR_GROUP_DESTROYED', { operation, group: this.#group.name })
  }

  #operationOf(call: Call<unknown>, staged: StagedBuffers, timeout: number): Restartable {
    const { reduction } = call
    return {
      name: call.name,
      group: this.#group.id,
      sequence: 0,
      dtype: call.dtype,
      reduction: reduction?.name ?? 'sum',
      factor: reduction?.factor ?? 1,
      deterministic: reduction?.deterministic ?? false,
      algorithm: isMessageName(call.name) ? 'auto' : checkAlgorithm(call.name, call.options),
      input: staged.input,
      output: staged.output,
      count: call.count,
      peer: call.peer ?? 0,
      table: staged.table?.byteOffset ?? 0,
      tag: call.tag ?? 0,
      timeout,
      aborted: call.options?.signal?.aborted === true,
      isReserved: call.sequence !== undefined,
      flight: 0,
      begun: 0,
    }
  }

  /**
   * Refuses further calls and waits for pending operations. Aborts operations that are still
   * pending after FINISH_TIME.
   */
  async finish(): Promise<void> {
    this.#isFinished = true
    this.#self.finish()
    this.repeated.clear()
    const timer = setTimeout(() => {
      for (const work of this.#pending) work.abort()
    }, FINISH_TIME)
    await Promise.allSettled(Array.from(this.#pending, (work) => work.done()))
    clearTimeout(timer)
  }

  /** Returns ERR_TSR_NOT_AWAITED, or its own error, for an operation that nobody has waited for. */
  unreadError(): Error | undefined {
    if (this.#isErrorRead || this.#failed?.run.isUnread === false) return undefined
    const run = this.#failed?.run ?? this.#unread
    if (run?.isUnread !== true) return undefined
    const { rank, name: group } = this.#group
    const facts = { rank, group, operation: describeCall(run.call) }
    const error = this.#failed?.error ?? tsrError('ERR_TSR_NOT_AWAITED', facts)
    showWaitingLine(error, run.origin)
    return error
  }

  onEnd(run: Run, error: Error | undefined): void {
    this.#pending.delete(run)
    if (!run.isUnread) {
      this.#isErrorRead ||= error !== undefined
    } else if (error === undefined) {
      if (run.call.output !== undefined && this.#unread?.isUnread !== true) this.#unread = run
    } else {
      const isAbort = isTsrError(error) && error.code === 'ERR_TSR_OPERATION_ABORTED'
      if (isCollective(run.operation) && !isAbort) this.#failed ??= { run, error }
    }
  }

  keep(work: Run): void {
    this.#pending.add(work)
    if (this.#pending.size <= this.#sweepAt) return
    // Release the resources of completed operations that nobody has awaited.
    for (const each of this.#pending) each.poll()
    this.#sweepAt = 2 * this.#pending.size + 100
  }
}
