import { tsrError, type TsrError } from '@tsrun/core'
import { decodeFault, encodeFault, faultError, type Fault } from './fault.ts'
import { spaces, type FrameHeader } from './frame.ts'
import { recall, type EngineGroup } from './group.ts'
import type { Link } from './link.ts'
import {
  describeFingerprint,
  isCollective,
  sameFingerprint,
  type Fingerprint,
} from './operation.ts'
import { streamKey, type Stream } from './stream.ts'
import { peerError, refusalError, sentenceOf, timeoutError, withdrawnError } from './task-errors.ts'
import { nameOf, type Task } from './task.ts'
import type { Transfer } from './transfer.ts'

/** What the engine lends: it owns all of it. */
export interface EngineState {
  readonly rank: number
  readonly links: readonly (Link | undefined)[]
  readonly groups: ReadonlyMap<number, EngineGroup>
  readonly running: ReadonlySet<Task>
  readonly settle: (task: Task, state: 'failed') => void
}

/** Groups that are not made yet, whose faults are kept. */
const EARLY_GROUPS = 64

/**
 * Ends operations that cannot finish, and tells the other ranks.
 *
 * A message that times out, is aborted or is withdrawn fails alone. A collective that fails, and a
 * mismatch, leave the ranks of a group in different places: then the group fails on every rank,
 * with all that runs on it from there on, and refuses what is called later.
 */
export class Failures {
  readonly #engine: EngineState
  /** Faults of groups that this rank has not made yet. */
  readonly #early = new Map<number, (() => void)[]>()

  constructor(engine: EngineState) {
    this.#engine = engine
  }

  /** Ends an operation with an error; `tellOthers` makes the group's other ranks fail as well. */
  fail(task: Task, error: TsrError, tellOthers: boolean): void {
    if (task.state !== 'running') return
    const { group, operation } = task
    if (!isCollective(operation)) {
      this.#end(task, error)
      return
    }
    const { sequence } = operation
    if (tellOthers) this.#tellGroup(group, sequence, error)
    this.#end(task, error)
    this.#failGroup(group, sequence, error)
  }

  /** See `Engine`. */
  checkDeadlines(now: number, patience: number): number {
    let earliest = Infinity
    for (const task of this.#engine.running) {
      if (task.deadline <= now) this.fail(task, timeoutError(task, this.#engine.rank), true)
      else if (task.deadline < earliest) earliest = task.deadline
      if (now - task.posted >= patience && !task.hasInquired) this.#inquire(task)
    }
    return earliest
  }

  /**
   * Ranks that wait for each other in different collectives may exchange nothing (each takes the
   * other for the root): so one that waits says what it runs.
   */
  #inquire(task: Task): void {
    task.hasInquired = true
    if (!isCollective(task.operation)) return
    for (const transfer of task.open) transfer.stream.link.inquire(transfer)
  }

  /** Compares messages that came before this collective was called with it. */
  checkEarlyMessages(task: Task): boolean {
    const { group, operation, fingerprint } = task
    const key = streamKey(spaces.collective, group.id, operation.sequence)
    for (const peer of group.ranks) {
      const stream = this.#engine.links[peer]?.streams.get(key)
      const odd = [...(stream?.unexpected ?? []), ...(stream?.clearances ?? [])].find(
        (message) => !sameFingerprint(message.fingerprint, fingerprint),
      )
      if (stream !== undefined && odd !== undefined) {
        this.onMismatch(stream, odd.fingerprint, undefined)
        return false
      }
    }
    return true
  }

  /** A message came for which nothing waits: compares it with what runs, or ran, there. */
  onUnexpected(stream: Stream, theirs: Fingerprint): void {
    const group = this.#engine.groups.get(stream.group)
    if (stream.space !== spaces.collective || group === undefined) return
    const running = group.active.get(stream.sequence)
    const mine = running?.fingerprint ?? recall(group, stream.sequence)
    if (mine === undefined || group.failure !== undefined) return
    if (!sameFingerprint(mine, theirs)) this.onMismatch(stream, theirs, undefined)
  }

  onMismatch(stream: Stream, theirs: Fingerprint, transfer: Transfer | undefined): void {
    const { link, space, sequence } = stream
    const group = this.#engine.groups.get(stream.group)
    if (group === undefined) return
    const task = transfer?.task ?? group.active.get(sequence)
    const mine = task?.fingerprint ?? recall(group, sequence)
    if (mine === undefined) return
    const fault: Fault = { kind: 'mismatch', mine, theirs }
    const error = tsrError('ERR_TSR_MISMATCH', {
      group: group.name,
      sequence,
      rank: this.#engine.rank,
      mine: describeFingerprint(mine),
      peer: link.peer,
      theirs: describeFingerprint(theirs),
    })
    link.sendFault({ space, group: group.id, sequence }, encodeFault(fault))
    if (task !== undefined) this.fail(task, error, true)
    if (space === spaces.message) this.#tellGroup(group, 'all', error)
    this.#failGroup(group, space === spaces.message ? 0 : sequence, error)
  }

  /** Another rank says that an operation cannot finish. */
  onFault(link: Link, header: FrameHeader, payload: Uint8Array): void {
    const group = this.#engine.groups.get(header.group)
    if (group === undefined) {
      this.#keep(header.group, () => {
        this.onFault(link, header, payload)
      })
      return
    }
    const { space, sequence } = header
    const fault = decodeFault(payload)
    const concernsAll = space === spaces.message || (fault.kind === 'failed' && fault.all)
    const facts = { group: group.name, sequence, rank: this.#engine.rank, peer: link.peer }
    for (const task of [...this.#engine.running]) {
      const { operation } = task
      const isMeant = isCollective(operation) && operation.sequence === sequence
      if (task.group !== group || (!concernsAll && !isMeant)) continue
      this.fail(task, faultError(fault, { ...facts, operation: nameOf(task) }), false)
    }
    const called = concernsAll ? undefined : recall(group, sequence)
    const operation = called === undefined ? `operation #${sequence}` : describeFingerprint(called)
    const error = faultError(fault, {
      ...facts,
      operation: concernsAll ? 'no operation' : operation,
    })
    this.#failGroup(group, concernsAll ? 0 : sequence, error)
  }

  /** Faults that came before the group was made. */
  onGroupAdded(id: number): void {
    const faults = this.#early.get(id) ?? []
    this.#early.delete(id)
    for (const fault of faults) fault()
  }

  onWithdrawn(receive: Transfer): void {
    const { task, stream } = receive
    this.fail(task, withdrawnError(task, stream.link, this.#engine.rank), true)
  }

  /** A peer is gone. One that has left fails what needs it; one that is lost, all its groups. */
  onClosed(link: Link): void {
    const { running, rank, groups } = this.#engine
    for (const task of [...running]) {
      const needsIt = [...task.open].some(({ stream }) => stream.link === link)
      const isLost = link.closed === 'lost' && task.group.ranks.includes(link.peer)
      if (needsIt || isLost) this.fail(task, peerError(task, link, rank), true)
    }
    if (link.closed !== 'lost') return
    for (const group of groups.values()) {
      if (!group.ranks.includes(link.peer)) continue
      const error = peerError(undefined, link, rank, group.name)
      // those who have not seen it yet must not take the ranks that end because of it for the cause
      this.#tellGroup(group, 'all', error)
      this.#failGroup(group, 0, error)
    }
  }

  /** The group fails from one of its collectives on; its messages fail all. */
  #failGroup(group: EngineGroup, from: number, error: TsrError): void {
    const { rank, running } = this.#engine
    const failure = group.failure
    if (failure !== undefined && failure.from <= from) return
    group.failure = { from, error: failure?.error ?? error }
    for (const task of [...running]) {
      if (task.group !== group) continue
      if (isCollective(task.operation) && task.operation.sequence < from) continue
      this.#end(task, refusalError(task, group.failure.error, rank))
    }
  }

  #end(task: Task, error: TsrError): void {
    if (task.state !== 'running') return
    task.error = error
    this.#engine.settle(task, 'failed')
  }

  #tellGroup(group: EngineGroup, sequence: number | 'all', error: TsrError): void {
    const all = sequence === 'all'
    const fault = encodeFault({ kind: 'failed', reason: sentenceOf(error), all })
    const address = { space: spaces.collective, group: group.id, sequence: all ? 0 : sequence }
    for (const peer of group.ranks) this.#engine.links[peer]?.sendFault(address, fault)
  }

  #keep(group: number, fault: () => void): void {
    const faults = this.#early.get(group) ?? []
    this.#early.set(group, [...faults, fault])
    const [oldest] = this.#early.keys()
    if (this.#early.size > EARLY_GROUPS && oldest !== undefined) this.#early.delete(oldest)
  }
}
