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
import { peerError, timeoutError } from './task-errors.ts'
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

/**
 * Ends operations that cannot finish, and tells the other ranks: mismatches, lost peers, time-outs,
 * and what other ranks report.
 */
export class Failures {
  readonly #engine: EngineState

  constructor(engine: EngineState) {
    this.#engine = engine
  }

  /** Ends an operation with an error; `tellOthers` makes the group's other ranks fail as well. */
  fail(task: Task, error: TsrError, tellOthers: boolean): void {
    if (task.state !== 'running') return
    if (isCollective(task.operation)) {
      task.group.failure ??= { from: task.operation.sequence + 1, error }
      if (tellOthers) this.#tellGroup(task, error)
    }
    task.error = error
    this.#engine.settle(task, 'failed')
  }

  /** Fails what is past its deadline; returns the earliest deadline of the rest. */
  checkDeadlines(now: number): number {
    let earliest = Infinity
    for (const task of this.#engine.running) {
      if (task.deadline <= now) this.fail(task, timeoutError(task, this.#engine.rank), true)
      else if (task.deadline < earliest) earliest = task.deadline
    }
    return earliest
  }

  /** Compares messages that came before this collective was called with it. */
  checkEarlyMessages(task: Task): boolean {
    const { group, operation, fingerprint } = task
    const key = streamKey(spaces.collective, group.id, operation.sequence)
    for (const peer of group.ranks) {
      const stream = this.#engine.links[peer]?.streams.get(key)
      const odd = stream?.unexpected
        .concat(stream.clearances.map((clearance) => ({ ...clearance, at: -1 })))
        .find((message) => !sameFingerprint(message.fingerprint, fingerprint))
      if (stream !== undefined && odd !== undefined) {
        this.onMismatch(stream, odd.fingerprint, undefined)
        return false
      }
    }
    return true
  }

  /** A message came for which nothing waits: compares it with what runs, or ran, there. */
  onUnexpected(stream: Stream, theirs: Fingerprint): void {
    if (stream.space !== spaces.collective) return
    const group = this.#engine.groups.get(stream.group)
    const running = group?.active.get(stream.sequence)
    const mine =
      running?.fingerprint ?? (group === undefined ? undefined : recall(group, stream.sequence))
    if (mine === undefined || group?.failure !== undefined) return
    if (!sameFingerprint(mine, theirs)) this.onMismatch(stream, theirs, undefined)
  }

  onMismatch(stream: Stream, theirs: Fingerprint, transfer: Transfer | undefined): void {
    const group = this.#engine.groups.get(stream.group)
    const task = transfer?.task ?? group?.active.get(stream.sequence)
    const mine =
      transfer?.fingerprint ?? task?.fingerprint ?? (group && recall(group, stream.sequence))
    if (group === undefined || mine === undefined) return
    const { link, space, sequence } = stream
    const error = tsrError('ERR_TSR_MISMATCH', {
      group: group.name,
      sequence,
      rank: this.#engine.rank,
      mine: describeFingerprint(mine),
      peer: link.peer,
      theirs: describeFingerprint(theirs),
    })
    const fault: Fault = { kind: 'mismatch', mine, theirs }
    link.sendFault({ space, group: group.id, sequence }, encodeFault(fault))
    if (task === undefined) group.failure ??= { from: sequence + 1, error }
    else this.fail(task, error, true)
  }

  /** Another rank says that an operation cannot finish. */
  onFault(link: Link, header: FrameHeader, payload: Uint8Array): void {
    const { groups, running, rank } = this.#engine
    const group = groups.get(header.group)
    if (group === undefined) return
    const fault = decodeFault(payload)
    const { space, sequence } = header
    const tasks =
      space === spaces.collective
        ? [group.active.get(sequence)]
        : [...running].filter((task) => concerns(task, link, header))
    const error = (operation: string): TsrError =>
      faultError(fault, { group: group.name, sequence, rank, peer: link.peer, operation })
    let failed = false
    for (const task of tasks) {
      if (task === undefined) continue
      failed = true
      this.fail(task, error(nameOf(task)), false)
    }
    if (!failed || space === spaces.collective) {
      const called = recall(group, sequence)
      const name = called === undefined ? `operation #${sequence}` : describeFingerprint(called)
      const from = called === undefined && space === spaces.collective ? sequence : 0
      group.failure ??= { from, error: error(name) }
    }
  }

  /** A peer is gone: fails what needs it. */
  onClosed(link: Link): void {
    const { running, rank } = this.#engine
    for (const task of [...running]) {
      for (const transfer of task.open) {
        if (transfer.stream.link !== link) continue
        this.fail(task, peerError(task, link, rank), true)
        break
      }
    }
  }

  #tellGroup({ group, operation: { sequence } }: Task, error: TsrError): void {
    const fault = encodeFault({ kind: 'failed', reason: error.message })
    const address = { space: spaces.collective, group: group.id, sequence }
    for (const peer of group.ranks) this.#engine.links[peer]?.sendFault(address, fault)
  }
}

function concerns(
  { operation, open }: Task,
  link: Link,
  { sequence, group }: FrameHeader,
): boolean {
  if (isCollective(operation) || operation.group !== group) return false
  return [...open].some(({ stream }) => stream.link === link && stream.sequence === sequence)
}
