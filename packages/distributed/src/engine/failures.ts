import { tsrError, type TsrError } from '@tsrun/core'
import {
  describeFingerprint,
  isCollective,
  isNative,
  belongsTo,
  type Fingerprint,
} from '../operation.ts'
import { decodeFault, encodeFault, faultError, mismatchError, type Fault } from './fault.ts'
import { hasDeparted, recall, refuses, type EngineGroup, type ErrorOf } from './group.ts'
import { spaces, type FrameHeader } from './messages/frame.ts'
import type { Link } from './messages/link.ts'
import { streamKey, type Stream } from './messages/stream.ts'
import type { EngineObserver } from './observer.ts'
import { peerError, refusalError, sentenceOf, timeoutError } from './task-errors.ts'
import type { Task, TaskTransfer } from './task.ts'

/** The state of the engine that this module reads and changes. The engine owns it. */
export interface EngineState {
  readonly rank: number
  readonly links: readonly (Link | undefined)[]
  readonly groups: ReadonlyMap<number, EngineGroup>
  /** Ids of groups that this rank has destroyed. */
  readonly destroyed: ReadonlySet<number>
  readonly running: ReadonlySet<Task>
  readonly settle: (task: Task, state: 'failed') => void
  readonly observer: EngineObserver
}

/** Largest number of groups whose faults are kept until this rank makes the group. */
const EARLY_GROUPS = 64

export type Failures = ReturnType<typeof createFailures>

/**
 * Ends operations that cannot finish, and notifies the other ranks.
 *
 * A message that times out, is aborted or is withdrawn fails alone. A failed collective or a
 * mismatch leaves the ranks of a group in different states. The group therefore fails on every
 * rank, from that collective on. Its running operations fail, and later operations are refused.
 */
export function createFailures({
  rank,
  links,
  groups,
  destroyed,
  running,
  settle,
  observer,
}: EngineState) {
  /** Faults that arrived before this rank had made the group, by group. */
  const early = new Map<number, (() => void)[]>()

  /** Ends an operation with an error. A failed collective also fails later operations of its group. */
  const fail = (task: Task, error: TsrError): void => {
    if (task.state !== 'running') return
    const { group, operation } = task
    if (isCollective(operation)) {
      const fault = { reason: sentenceOf(error), all: false }
      failGroup(group, operation.sequence, error, onlyOf(task, error), fault)
    } else {
      end(task, error)
      observer.onFailure(error)
    }
  }

  /**
   * Handles a peer that runs a different operation than this rank. `transfer` is the transfer of
   * this rank that was matched with the peer's message, if any.
   */
  const onMismatch = (stream: Stream, theirs: Fingerprint, transfer?: TaskTransfer): void => {
    const { link, space, sequence } = stream
    const group = groups.get(stream.group)
    if (group === undefined) return
    const task = transfer?.task ?? group.active.get(sequence)
    const mine = transfer?.fingerprint ?? task?.fingerprint ?? recall(group, sequence)
    if (mine === undefined) return
    const mismatch = {
      rank,
      mine,
      mySite: observer.siteOf(group.id, sequence, rank),
      peer: link.peer,
      theirs,
      theirSite: observer.siteOf(group.id, sequence, link.peer),
    }
    const error = mismatchError(group.name, sequence, mismatch)
    failGroup(group, sequence, error, onlyOf(task, error), {
      reason: sentenceOf(error),
      all: space === spaces.message,
      mismatch,
    })
  }

  /**
   * After a long wait, tells the awaited ranks which operation this rank runs. Two ranks in different
   * collectives may wait for each other forever, because each expects the other to send first.
   */
  const inquire = (task: Task): void => {
    task.hasInquired = true
    if (!isCollective(task.operation)) return
    for (const { stream, fingerprint } of task.open) stream.link.inquire(stream, fingerprint)
    askPeers(task, task.waitingFor?.missing?.() ?? [])
  }

  const askPeers = ({ group, operation, fingerprint }: Task, peers: Iterable<number>): void => {
    const address = { space: spaces.collective, group: group.id, sequence: operation.sequence }
    for (const peer of peers) links[peer]?.inquire(address, fingerprint)
  }

  /** Fails the operations of one group, or of all groups, that still need a departed peer. */
  const onDeparted = (link: Link, group?: EngineGroup): void => {
    for (const task of [...running]) {
      if (group !== undefined && task.group !== group) continue
      if (task.needs(link.peer)) fail(task, peerError(task, link, rank))
    }
  }

  /** Handles the launcher's report that the job ends because of rank `peer`. */
  const onAborted = (peer: number): void => {
    if (running.size === 0) return
    for (const group of groups.values()) {
      const lost = (operation: string): TsrError => {
        const reason = 'its launcher has seen its end'
        return tsrError('ERR_TSR_PEER_LOST', { peer, rank, operation, group: group.name, reason })
      }
      const error = lost('no operation')
      const fault = { reason: sentenceOf(error), all: true }
      failGroup(group, 0, error, (task) => lost(task.describe()), fault)
    }
  }

  /**
   * Fails a group, as a whole or from one of its collectives on. A rank that learns of the failure
   * first tells all other ranks. Otherwise, they might mistake a consequence, such as a rank that
   * leaves, for the cause.
   */
  const failGroup = (
    group: EngineGroup,
    sequence: number,
    error: TsrError,
    errorOf: ErrorOf,
    fault: Fault,
  ): void => {
    const from = fault.all ? 0 : sequence
    const before = group.failure
    const failure =
      before !== undefined && before.from <= from
        ? before
        : { from, error: before?.error ?? error, errorOf }
    group.failure = failure
    group.epochs?.close()
    if (failure !== before) tellGroup(group, sequence, fault)
    for (const task of [...running]) {
      if (task.group !== group) continue
      if (isCollective(task.operation) && task.operation.sequence < from) continue
      end(task, errorOf(task) ?? refusalError(task, failure.error))
    }
    observer.onFailure(error)
  }

  const end = (task: Task, error: TsrError): void => {
    if (task.state !== 'running') return
    task.error = error
    settle(task, 'failed')
  }

  const tellGroup = (group: EngineGroup, sequence: number, fault: Fault): void => {
    const payload = encodeFault(fault)
    const address = { space: spaces.collective, group: group.id, sequence }
    for (const peer of group.ranks) links[peer]?.sendFault(address, payload)
  }

  /** Handles a peer's report that an operation cannot finish. */
  const onFault = (link: Link, header: FrameHeader, payload: Uint8Array): void => {
    const group = groups.get(header.group)
    if (group === undefined) {
      if (destroyed.has(header.group)) return
      keep(header.group, () => {
        onFault(link, header, payload)
      })
      return
    }
    const { sequence } = header
    const fault = decodeFault(payload)
    if (fault.destroyed === true) {
      group.departed.add(link.peer)
      group.epochs?.close()
      onDeparted(link, group)
      return
    }
    const facts = { group: group.name, sequence, rank, peer: link.peer }
    const errorOf = (operation: string): TsrError => faultError(fault, { ...facts, operation })
    const called = recall(group, sequence)
    const name = called === undefined ? `operation #${sequence}` : describeFingerprint(called)
    const error = errorOf(fault.all ? 'every operation' : name)
    const errorOfTask: ErrorOf = (task) => {
      const isMeant = isCollective(task.operation) && task.operation.sequence === sequence
      return fault.all || isMeant ? errorOf(task.describeWaiting()) : undefined
    }
    failGroup(group, sequence, error, errorOfTask, fault)
  }

  const keep = (group: number, fault: () => void): void => {
    const faults = early.get(group) ?? []
    early.set(group, [...faults, fault])
    const [oldest] = early.keys()
    if (early.size > EARLY_GROUPS && oldest !== undefined) early.delete(oldest)
  }

  return {
    fail,
    onMismatch,
    onFault,
    /** Ends an operation if its group has failed. Returns whether it has. */
    refuse(task: Task): boolean {
      const { group, operation } = task
      const { failure } = group
      if (failure === undefined || !refuses(group, operation)) return false
      // If `begun` > 0, the operation was already running on the calling thread when the group failed.
      const cause = operation.begun > 0 ? failure.errorOf(task) : undefined
      fail(task, cause ?? refusalError(task, failure.error))
      return true
    },
    /** Fails operations past their deadline, as `Engine.checkDeadlines` documents. */
    checkDeadlines(now: number, patience: number): number {
      const abortedBy = observer.abortedBy()
      if (abortedBy !== undefined) onAborted(abortedBy)
      let earliest = Infinity
      for (const task of running) {
        if (task.deadline <= now) fail(task, timeoutError(task))
        else if (task.deadline < earliest) earliest = task.deadline
        if (now - task.posted >= patience && !task.hasInquired) inquire(task)
      }
      return earliest
    },
    /** @throws if a task waits for a departed rank and would therefore wait forever */
    requirePresent(task: Task, awaited: readonly number[]): void {
      for (const peer of awaited) {
        const link = links[peer]
        if (link !== undefined && hasDeparted(task.group, link)) throw peerError(task, link, rank)
      }
    },
    /** Whether a collective matches the messages that arrived before it was called. */
    checkEarlyMessages(task: Task): boolean {
      const { group, operation, fingerprint } = task
      if (isNative(operation)) askPeers(task, neighboursOf(task))
      const key = streamKey(spaces.collective, group.id, operation.sequence)
      for (const peer of group.ranks) {
        const stream = links[peer]?.streams.get(key)
        if (stream === undefined) continue
        const other = [...stream.unexpected, ...stream.cleared].find(
          (message) => !belongsTo(message.fingerprint, fingerprint),
        )
        if (other === undefined) continue
        onMismatch(stream, other.fingerprint)
        return false
      }
      return true
    },
    /** Compares an unexpected message with the current or past collective at its position. */
    onUnexpected(stream: Stream, theirs: Fingerprint): void {
      const group = groups.get(stream.group)
      if (stream.space !== spaces.collective || group === undefined) return
      const running = group.active.get(stream.sequence)
      const mine = running?.fingerprint ?? recall(group, stream.sequence)
      if (mine === undefined || group.failure !== undefined) return
      if (!belongsTo(theirs, mine)) onMismatch(stream, theirs)
    },
    /** Handles faults that arrived before the group was made. */
    onGroupAdded(id: number): void {
      const faults = early.get(id) ?? []
      early.delete(id)
      for (const fault of faults) fault()
    },
    /** Fails a group on all its ranks, because this rank asks for it. */
    failGroup: (id: number, reason: string): void => {
      const group = groups.get(id)
      if (group === undefined) return
      const errorOf = (operation: string): TsrError =>
        tsrError('ERR_TSR_GROUP_FAILED', { rank, operation, group: group.name, reason })
      const error = errorOf('every operation')
      failGroup(group, 0, error, (task) => errorOf(task.describe()), { reason, all: true })
    },
    /**
     * Handles a closed link. If the peer left, operations that need the peer fail. If the peer was
     * lost, all groups with the peer fail.
     */
    onClosed(link: Link): void {
      if (link.closed === 'left') {
        for (const { ranks, epochs } of groups.values()) {
          if (ranks.includes(link.peer)) epochs?.close()
        }
        onDeparted(link)
        return
      }
      for (const group of groups.values()) {
        // Skip a group that has already failed as a whole. Its cause may still be on the way to other
        // ranks.
        if (!group.ranks.includes(link.peer) || group.failure?.from === 0) continue
        const first = [...running].find((task) => task.group === group)
        const error = peerError(first, link, rank, group.name)
        const fault = { reason: sentenceOf(error), all: true }
        failGroup(group, 0, error, (task) => peerError(task, link, rank), fault)
      }
    },
    /** Tells the members that this rank has destroyed a group. Close frames do this for the world. */
    onDestroyed(group: EngineGroup): void {
      if (group.id !== 0) tellGroup(group, 0, { reason: '', all: false, destroyed: true })
    },
  }
}

function onlyOf(task: Task | undefined, error: TsrError): ErrorOf {
  return (other) => (other === task ? error : undefined)
}

/**
 * Returns the previous and the next rank in the group. libmpi does not compare the operations of ranks, so
 * each rank tells both neighbours which operation it runs. The later of two ranks detects a mismatch.
 */
function neighboursOf({ group: { rank, ranks } }: Task): Iterable<number> {
  return new Set([ranks.at(rank - 1)!, ranks[(rank + 1) % ranks.length]!])
}
