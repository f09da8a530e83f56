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

export type PreparedOperation = ReturnType<typeof prepareOperation>

/** Makes a `PersistentOperation` of a call with checked arguments and placed buffers. */
export function prepareOperation(
  owner: Owner,
  call: Call<unknown>,
  operation: Restartable,
  staged: StagedBuffers,
) {
  const { runner } = owner
  const { journal } = runner
  const signal = call.options?.signal
  let ticket: Ticket | undefined
  let isUnderWay = false
  let isFreed = false
  /** Whether libmpi may still use the staged buffers, so that they can never be freed. */
  let mustKeepBuffers = false
  let error: Error | undefined
  let ended: Promise<void> | undefined
  let resolveEnded: (() => void) | undefined

  const refusal = (value: string, expected: string): TsrError =>
    argumentError(`the prepared ${call.name}`, value, expected)

  const takeError = (): Error | undefined => {
    const taken = error
    error = undefined
    return taken
  }

  const throwError = (): void => {
    const taken = takeError()
    if (taken === undefined) return
    showWaitingLine(taken)
    throw taken
  }

  const settle = (): void => {
    if (!isUnderWay) return
    isUnderWay = false
    error = endRun(owner, prepared, ticket!, staged)
    mustKeepBuffers ||= isHeld(runner, operation, ticket!)
    resolveEnded?.()
    ended = resolveEnded = undefined
  }

  /** Moves the data that this thread can move. Returns whether no run is under way. */
  const isCompleted = (): boolean => {
    if (isUnderWay && ticket!.poll()) settle()
    return !isUnderWay
  }

  const begin = (isAwaited: boolean): void => {
    if (isFreed) throw refusal('one that free() has ended', 'a new one')
    if (isUnderWay && !isCompleted()) {
      throw refusal('one that is under way', 'to be started again after wait() or done()')
    }
    throwError()
    const { spans } = journal
    const called = spans === undefined ? 0 : monotonicNow()
    staged.refill(call)
    ticket = owner.launch(prepared, ticket, isAwaited)
    isUnderWay = true
    if (spans === undefined) return
    const name = call.options?.label ?? call.name
    spans.record('call', called, monotonicNow(), { name })
  }

  const wait = (): void => {
    if (isUnderWay) {
      blockUntilSettled(journal.spans, ticket!, call.name)
      settle()
    }
    throwError()
  }

  const done = async (): Promise<void> => {
    if (isUnderWay) {
      ended ??= new Promise((resolve) => {
        resolveEnded = resolve
        ticket!.onSettled(() => {
          // Another run may have started in the meantime.
          if (ticket!.isSettled) settle()
        }, true)
      })
      await ended
    }
    const taken = takeError()
    if (taken !== undefined) await failWithWaitingLine(taken)
  }

  const abort = (): void => {
    if (isUnderWay) ticket!.abort()
  }

  const prepared = {
    call,
    operation,
    /**
     * Number of the message in its series, from `createMessageOrder`; undefined if unknown or not a
     * message.
     */
    order: undefined as number | undefined,
    isUnread: false,
    start(): void {
      begin(false)
      owner.keep(prepared)
    },
    /** Starts the operation and blocks until it has ended. */
    runSync(): void {
      begin(true)
      try {
        // Like a first call, it blocks only if other ranks are late.
        isCompleted()
        wait()
      } catch (thrown) {
        if (isUnderWay) owner.keep(prepared)
        throw thrown
      }
    },
    get prefersRun(): boolean {
      return runner.prefersCaller(operation)
    },
    async run(): Promise<void> {
      begin(true)
      owner.keep(prepared)
      ticket!.spinBriefly()
      await done()
    },
    wait,
    done,
    isCompleted,
    poll: isCompleted,
    get timing(): WorkTiming | undefined {
      return ticket?.timing
    },
    abort,
    free(): void {
      if (isFreed) return
      if (!isCompleted()) throw refusal('one that is under way', 'one that has ended')
      isFreed = true
      signal?.removeEventListener('abort', abort)
      if (!mustKeepBuffers) staged.free()
    },
  }
  signal?.addEventListener('abort', abort)
  return prepared satisfies PersistentOperation
}
