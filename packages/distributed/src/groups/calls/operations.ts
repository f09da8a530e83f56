import { isTsrError, monotonicNow, tsrError } from '@tsrun/core'
import { isCollective, type Operation, type OperationName } from '../../operation.ts'
import type { Runner } from '../../runners/runner.ts'
import { Ticket } from '../../ticket.ts'
import { checkAlgorithm, checkOptionNames, checkTimeout } from './arguments.ts'
import { createMessageOrder } from './message-order.ts'
import { PreparedOperation, type Restartable } from './persistent.ts'
import { createRepeatedCalls } from './repeated-calls.ts'
import { createSelfMessages, describeCall } from './self-messages.ts'
import { StagedBuffers } from './staging.ts'
import type { Call, StartMode } from './call.ts'
import type { StartedWork } from './pending-work.ts'
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

export type Operations = ReturnType<typeof createOperations>

/** Stages the buffers of a group's operations, starts them, and tracks the pending ones. */
export function createOperations(group: GroupIdentity, runner: Runner) {
  const { arena, journal } = runner
  const selfMessages = createSelfMessages(group, arena.heap)
  const pending = new Set<Run>()
  const nextOrder = createMessageOrder()
  let collectives = 0
  let messages = 0
  let isFinished = false
  /** An operation that wrote an output and ended before anyone awaited it. */
  let unread: Run | undefined
  /** The first collective that failed before anyone awaited it. */
  let failed: { readonly run: Run; readonly error: Error } | undefined
  /** Whether an error has reached a caller. Then `unreadError` reports nothing. */
  let isErrorRead = false
  let mode: StartMode = 'started'
  /** Number of pending operations at which completed ones are removed even if nobody awaits them. */
  let sweepAt = 100

  const refuse = (operation: string): never => {
    throw tsrError('ERR_TSR_GROUP_DESTROYED', { operation, group: group.name })
  }

  /** @returns the time-out in milliseconds */
  const check = ({ name, options, patience = 1 }: Call<unknown>): number => {
    if (isFinished) refuse(name)
    if (options !== undefined) checkOptionNames(options)
    return checkTimeout(options?.timeout, group.timeout) * patience
  }

  const operationOf = (
    call: Call<unknown>,
    staged: StagedBuffers,
    timeout: number,
  ): Restartable => {
    const { reduction } = call
    return {
      name: call.name,
      group: group.id,
      sequence: 0,
      dtype: call.dtype,
      reduction: reduction?.name ?? 'sum',
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

  /** Assigns the next position to the operation and starts it. */
  const run = (
    call: Call<unknown>,
    operation: Restartable,
    isAwaited: boolean,
    former?: Ticket,
  ): Ticket => {
    const isMessage = isMessageName(call.name)
    operation.sequence = isMessage ? messages : (call.sequence ?? collectives)
    operation.flight = journal.number(call.options?.label)
    const isToSelf = isMessage && operation.peer === group.rank
    const driver = isToSelf ? selfMessages.driver : runner.driverOf(operation)
    const ticket = former ?? new Ticket(driver, operation)
    driver.start(ticket, operation, isAwaited)
    // Count only accepted operations. Otherwise a refused call would put this rank ahead of the
    // others.
    if (isMessage) messages++
    else if (call.sequence === undefined) collectives++
    return ticket
  }

  const orderOf = (operation: Operation): number | undefined => {
    if (journal.spans === undefined || !isMessageName(operation.name)) return undefined
    // Messages of a rank to itself need no number, because no peer matches them.
    return operation.peer === group.rank ? undefined : nextOrder(operation)
  }

  /** Checks a call and places its buffers once, for many runs. */
  const prepare = (call: Call<unknown>): PreparedOperation => {
    const timeout = check(call)
    const staged = new StagedBuffers(arena, call)
    try {
      return new PreparedOperation(operations, call, operationOf(call, staged, timeout), staged)
    } catch (error) {
      staged.free()
      throw error
    }
  }

  const operations = {
    runner,
    arena,
    ranks: group.ranks,
    isFake: runner.transport === 'none',
    repeated: createRepeatedCalls(arena),

    /** Reserves the next `count` positions among the group's collectives and returns the first. */
    reserve(count: number): number {
      const first = collectives
      collectives += count
      return first
    },

    /**
     * Starts or prepares a checked call.
     *
     * @throws ERR_TSR_GROUP_DESTROYED, ERR_TSR_ARGUMENT, ERR_TSR_ARENA_EXHAUSTED,
     *   ERR_TSR_TOO_MANY_OPERATIONS
     */
    start<T>(call: Call<T>): StartedWork<T> {
      if (mode === 'prepared') {
        // Prepare only this call. A getter of its options may make another call, which must start.
        mode = 'started'
        return prepare(call) as unknown as StartedWork<T>
      }
      const { name, options } = call
      const { spans } = journal
      const called = spans === undefined ? 0 : monotonicNow()
      let staged: StagedBuffers | undefined
      try {
        const timeout = check(call)
        staged = new StagedBuffers(arena, call)
        const operation = operationOf(call, staged, timeout)
        const ticket = run(call, operation, mode === 'awaited')
        const isEarly = collectives + messages <= KEPT_STACKS
        const origin = isEarly ? new Error() : undefined
        const work = new OperationWork<T>(operations, call, operation, ticket, staged, origin)
        work.order = orderOf(operation)
        work.isUnread = mode !== 'awaited'
        spans?.record('call', called, monotonicNow(), { name: options?.label ?? name })
        if (ticket.isSettled) work.poll()
        else operations.keep(work)
        return work
      } catch (error) {
        staged?.free()
        throw error
      }
    },

    inMode<T>(wanted: StartMode, make: () => T): T {
      const former = mode
      mode = wanted
      try {
        return make()
      } finally {
        mode = former
      }
    },

    /**
     * Starts a run of a prepared operation at the next position of the group.
     * @param former - the ticket of the previous run
     */
    launch(prepared: PreparedOperation, former: Ticket | undefined, isAwaited: boolean): Ticket {
      const { call, operation } = prepared
      if (isFinished) refuse(call.name)
      operation.aborted = call.options?.signal?.aborted === true
      const ticket = run(call, operation, isAwaited, former)
      prepared.order = orderOf(operation)
      return ticket
    },

    /** Refuses further calls. Waits for pending operations, and aborts after FINISH_TIME. */
    async finish(): Promise<void> {
      isFinished = true
      selfMessages.finish()
      const timer = setTimeout(() => {
        for (const work of pending) work.abort()
      }, FINISH_TIME)
      await Promise.allSettled(Array.from(pending, (work) => work.done()))
      clearTimeout(timer)
    },

    /** Returns the error of an operation that was not awaited: its failure, or ERR_TSR_NOT_AWAITED. */
    unreadError(): Error | undefined {
      if (isErrorRead || failed?.run.isUnread === false) return undefined
      const unawaited = failed?.run ?? unread
      if (unawaited?.isUnread !== true) return undefined
      const { rank, name } = group
      const facts = { rank, group: name, operation: describeCall(unawaited.call) }
      const error = failed?.error ?? tsrError('ERR_TSR_NOT_AWAITED', facts)
      showWaitingLine(error, unawaited.origin)
      return error
    },

    /** Called when this thread notices the end of a run. */
    onEnd(ended: Run, error: Error | undefined): void {
      if (pending.size > 0) pending.delete(ended)
      if (!ended.isUnread) {
        isErrorRead ||= error !== undefined
      } else if (error === undefined) {
        const { output, parts } = ended.call
        if ((output ?? parts) !== undefined && unread?.isUnread !== true) unread = ended
      } else {
        const isAbort = isTsrError(error) && error.code === 'ERR_TSR_OPERATION_ABORTED'
        if (isCollective(ended.operation) && !isAbort) failed ??= { run: ended, error }
      }
    },

    /** Tracks a run, which must end before the group is destroyed. */
    keep(work: Run): void {
      pending.add(work)
      if (pending.size <= sweepAt) return
      // Release the resources of completed operations that nobody has awaited.
      for (const each of pending) each.poll()
      sweepAt = 2 * pending.size + 100
    },
  }
  return operations
}
