import { monotonicNow, type TsrError } from '@tsrun/core'
import { yieldCore } from '@tsrun/native'
import { NO_PEER } from '../../diagnosis/flight-recorder.ts'
import type { Journal } from '../../diagnosis/journal.ts'
import { publishStatus } from '../../diagnosis/status-publisher.ts'
import {
  ANY_SOURCE,
  bytesOf,
  fingerprintOf,
  isCollective,
  type Fingerprint,
  type Operation,
} from '../../operation.ts'
import { Epochs } from '../../shared/epochs.ts'
import type { Ticket, TicketDriver } from '../../ticket.ts'
import type { Mail } from '../../transports/mailbox.ts'
import type { LocalPlace } from '../../transports/transport.ts'
import { keepApart } from '../placement.ts'
import { LocalGroup, type LocalContext } from './local-group.ts'
import { MessageLane } from './message-lane.ts'

/** Milliseconds without progress after which a waiting caller hands its operation to the engine. */
const PATIENCE = 0.2
/**
 * Milliseconds that replace PATIENCE for a blocking receive, if the engine has its own thread. An engine
 * that takes over a receive needs a core, and also takes the messages that follow.
 */
const BLOCKED_RECEIVE_PATIENCE = 1
/** Milliseconds added to PATIENCE for each byte of the buffer, because peers may be copying it. */
const PATIENCE_PER_BYTE = 1e-6
/**
 * Milliseconds after which an operation is handed to the engine, if the caller polls it instead of waiting.
 * Receives may stay longer, because they do not delay other ranks.
 */
const POLLED_PATIENCE = 1
const POLLED_RECEIVE_PATIENCE = 100

export interface CallingThreadOptions extends LocalContext {
  readonly journal: Journal
  readonly place: LocalPlace | undefined
  /** The mailboxes from and to each world rank that shares memory with this one. */
  readonly mail: readonly (Mail | undefined)[]
  /** The driver of operations that are handed to the engine. */
  readonly engine: TicketDriver
  /** Whether the engine has room for one more operation besides the pending receives. */
  readonly hasRoom?: () => boolean
}

export type CallingThread = NonNullable<ReturnType<typeof createCallingThread>>

/**
 * Runs collectives and small messages of ranks that share memory on the calling thread. A rank
 * publishes its buffer when it calls, and reads the others' buffers when it waits. If all ranks
 * arrive almost together, no thread is woken. Operations that take longer are handed to the engine.
 * Mismatched operations are handed over as well, because the engine reports the mismatch.
 *
 * A send completes at once if its message fits into the mailbox of the receiver. A receive waits on
 * this thread like a collective.
 *
 * @returns undefined under TSRUN_DEBUG=detail: call sites are sent as messages, and only the engine
 *   can send those
 */
export function createCallingThread(options: CallingThreadOptions) {
  const { journal, place, arena, mail, epochs: allEpochs, isIdle, engine, hasRoom } = options
  if (journal.owner.settings.detail) return undefined
  const { recorder } = journal
  const groups: (LocalGroup | undefined)[] = []
  /** The messages to and from each world rank. */
  const lanes = mail.map((each) => each && new MessageLane(arena.heap, each))
  const onYield = place && keepApart(place)
  const status = journal.status && publishStatus(journal.status, 'caller')
  let pendingReceives = 0

  /** Returns the lane of a message. Undefined for a collective or without mailboxes. */
  const laneOf = (operation: Operation): MessageLane | undefined => {
    if (isCollective(operation)) return undefined
    return lanes[groups[operation.group]?.ranks[operation.peer] ?? -1]
  }

  const end = (ticket: Ticket, started: number, completed = monotonicNow()): void => {
    const { operation, posted } = ticket
    ticket.settle(undefined, posted, started, completed)
    recorder.end(operation.flight, started, completed, undefined)
    status?.onSettled(operation, posted, undefined, completed)
  }

  const begin = (
    ticket: Ticket,
    operation: Operation,
    fingerprint: Fingerprint,
    { name }: LocalGroup,
    peer: number,
    posted: number,
  ): void => {
    ticket.begin(driver, operation)
    ticket.posted = posted
    recorder.start(operation, fingerprint, peer, posted, 'running')
    status?.onStart(operation, fingerprint, name, posted)
  }

  const hand = (ticket: Ticket, begun: number): void => {
    const { operation, posted } = ticket
    try {
      engine.start(ticket, { ...operation, begun }, true)
    } catch (error) {
      ticket.settle(error as TsrError, posted, posted, monotonicNow())
    }
  }

  /** Hands pending receives to the engine, up to and including the last receive of a stream. */
  const handThrough = (lane: MessageLane, operation: Operation): void => {
    for (const ticket of lane.removeThrough(operation)) {
      pendingReceives -= 1
      hand(ticket, 1)
    }
  }

  const leave = (ticket: Ticket): void => {
    const { operation } = ticket
    const lane = laneOf(operation)
    if (lane !== undefined) {
      handThrough(lane, operation)
      return
    }
    const group = groups[operation.group]!
    const { begun } = group.run!
    group.end()
    hand(ticket, begun)
  }

  /** Completes pending receives whose messages have arrived. Returns true once `ticket` has ended. */
  const receive = (lane: MessageLane, ticket: Ticket, spins: boolean): boolean => {
    if (!lane.pending.includes(ticket)) return true
    if (spins) lane.spin()
    for (let ended = lane.receive(); ended !== undefined; ended = lane.receive()) {
      pendingReceives -= 1
      const now = monotonicNow()
      end(ended, now, now)
      if (ended === ticket) return true
    }
    if (!lane.isForEngine(ticket.operation)) return false
    handThrough(lane, ticket.operation)
    return true
  }

  /**
   * Makes progress with an operation. Returns true once the operation has ended or was handed to
   * the engine.
   *
   * @param spins - whether to wait briefly for a message
   */
  const proceed = (ticket: Ticket, spins = false): boolean => {
    const { operation } = ticket
    const lane = laneOf(operation)
    if (lane !== undefined) return receive(lane, ticket, spins)
    const group = groups[operation.group]
    return group?.current !== ticket || proceedIn(group, ticket)
  }

  const proceedIn = (group: LocalGroup, ticket: Ticket): boolean => {
    if (group.proceed()) {
      group.end()
      end(ticket, ticket.posted)
      return true
    }
    // The ranks run different operations. Let the engine report the operation of each rank.
    if (group.differs) leave(ticket)
    return group.current === undefined
  }

  /** Hands the pending operation of a group to the engine, unless the operation can end now. */
  const flush = (group: LocalGroup | undefined): void => {
    const ticket = group?.current
    if (ticket !== undefined && !proceed(ticket)) leave(ticket)
  }

  /** Yields until the operation ends. Returns false if it makes no progress for too long. */
  const wait = (ticket: Ticket, patience: number): boolean => {
    const { operation } = ticket
    const run = isCollective(operation) ? groups[operation.group]!.run! : undefined
    let begun = run?.begun
    let start = monotonicNow()
    const limit = patience + bytesOf(operation) * PATIENCE_PER_BYTE
    for (let now = start; now - start < limit; now = monotonicNow()) {
      yieldCore()
      onYield?.(now)
      if (proceed(ticket, true)) return true
      if (run?.begun === begun) continue
      begun = run?.begun
      start = now
    }
    return false
  }

  /** Completes the operation if all ranks arrive soon. Otherwise hands it to the engine. */
  const endSoon = (ticket: Ticket, isAwaited: boolean, patience = PATIENCE): void => {
    if (proceed(ticket, isAwaited)) return
    if (!isAwaited || !wait(ticket, patience)) leave(ticket)
  }

  /**
   * Whether this thread may begin an operation. Check `isIdle` first: until the engine has read all
   * commands, the counters are outdated.
   */
  const mayBegin = ({ aborted }: Operation, { epochs }: LocalGroup): boolean =>
    !aborted && isIdle() && !epochs.isClosed

  const startCollective = (ticket: Ticket, operation: Operation, isAwaited: boolean): void => {
    const group = groups[operation.group]
    if (group?.current !== undefined) flush(group)
    const run = group?.runOf(operation)
    // A large operation makes progress only while its caller waits, and until then delays the other
    // ranks.
    const isHere = run !== undefined && (isAwaited || !run.isLarge) && mayBegin(operation, group!)
    const posted = isHere ? monotonicNow() : 0
    if (!isHere || !group!.begin(ticket, run, operation, isAwaited)) {
      engine.start(ticket, operation, isAwaited)
      return
    }
    begin(ticket, operation, run.running.fingerprint, group!, NO_PEER, posted)
    // When recording spans, do not wait here: the time would count as part of the call.
    if (run.isLarge || (isAwaited && journal.spans === undefined)) proceedIn(group!, ticket)
  }

  const startMessage = (ticket: Ticket, operation: Operation, isAwaited: boolean): void => {
    const group = groups[operation.group]
    const lane = laneOf(operation)
    const isReceive = operation.name === 'recv'
    const isHere = lane?.reserve(operation) === true && mayBegin(operation, group!)
    const fits = isHere && (!isReceive || (hasRoom?.() ?? true))
    // Take the time first: the receive on the peer may complete before `lane.begin` returns.
    const posted = fits ? monotonicNow() : 0
    if (!fits || !lane.begin(ticket, operation)) {
      engine.start(ticket, operation, isAwaited)
      return
    }
    const peer = group!.ranks[operation.peer]!
    begin(ticket, operation, fingerprintOf(operation), group!, peer, posted)
    if (isReceive) {
      pendingReceives += 1
      proceed(ticket)
    } else {
      end(ticket, posted)
    }
  }

  const driver: TicketDriver = {
    /** Starts an operation on this thread if possible. Otherwise hands it to the engine. */
    start(ticket, operation, isAwaited) {
      if (isCollective(operation)) startCollective(ticket, operation, isAwaited)
      else startMessage(ticket, operation, isAwaited)
    },
    poll(ticket) {
      const { operation, posted } = ticket
      const patience = isCollective(operation) ? POLLED_PATIENCE : POLLED_RECEIVE_PATIENCE
      if (!proceed(ticket) && monotonicNow() - posted > patience) leave(ticket)
      if (ticket.driver !== driver) ticket.poll()
    },
    spinBriefly(ticket) {
      endSoon(ticket, true)
      if (ticket.driver !== driver) ticket.spinBriefly()
    },
    block(ticket, operation) {
      const isPatient = !isCollective(ticket.operation) && isIdle()
      endSoon(ticket, true, isPatient ? BLOCKED_RECEIVE_PATIENCE : PATIENCE)
      if (ticket.driver !== driver) ticket.block(operation)
    },
    notify(ticket, callback, isAwaited) {
      endSoon(ticket, isAwaited)
      ticket.onSettled(callback, isAwaited)
    },
    abort(ticket) {
      endSoon(ticket, false)
      ticket.abort()
    },
  }

  return {
    driver,
    /** The number of receives that wait on this thread. The engine keeps room for all of them. */
    pendingReceives: () => pendingReceives,
    addGroup(id: number, name: string, ranks: readonly number[]): void {
      const epochs = Epochs.of(allEpochs, id)
      if (epochs === undefined || ranks.length < 2) return
      groups[id] = new LocalGroup(options, epochs, id, name, ranks)
    },
    removeGroup(id: number): void {
      flush(groups[id])
      // A new index would make the array sparse, and slow.
      if (id in groups) groups[id] = undefined
    },
    /** Whether the ranks of a group share memory. */
    reaches: (group: number): boolean => groups[group]?.isReached === true,
    /** Whether this thread can run an operation if its group is idle and the caller waits at once. */
    runs(operation: Operation): boolean {
      if (!isCollective(operation)) return laneOf(operation)?.reserve(operation) === true
      return groups[operation.group]?.runOf(operation) !== undefined
    },
    /**
     * Finishes the pending operations that `operation` must not overtake, or hands them to the engine.
     * Called before the engine starts `operation`.
     */
    flushBefore(operation: Operation): void {
      const group = groups[operation.group]
      if (isCollective(operation)) {
        flush(group)
        return
      }
      for (const [member, peer] of group?.ranks.entries() ?? []) {
        const lane = lanes[peer]
        const isMeant = operation.peer === member || operation.peer === ANY_SOURCE
        if (lane === undefined || !isMeant) continue
        lane.reserve(operation)
        if (operation.name === 'recv') handThrough(lane, operation)
      }
    },
  }
}
