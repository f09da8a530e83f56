import { monotonicNow, type TsrError } from '@tsrun/core'
import { StatusSlot } from '../record/status-slot.ts'
import type { FlightEntry } from '../record/flight-records.ts'
import { dtypes } from '../dtype.ts'
import { refuses, type EngineGroup } from '../engine/group.ts'
import { spaces, type StreamAddress } from '../engine/messages/frame.ts'
import type { Link } from '../engine/messages/link.ts'
import type { EngineObserver, ObservedEngine } from '../engine/observer.ts'
import { sentenceOf } from '../engine/task-errors.ts'
import type { Task } from '../engine/task.ts'
import { isCollective } from '../operation.ts'
import { CallSites } from './call-sites.ts'
import { ANY_PEER, NO_PEER } from './flight-recorder.ts'
import { Journal, type SharedJournal } from './journal.ts'
import { decodeNotice, encodeNotice } from './notices.ts'
import { Stalls } from './stalls.ts'
import { StatusPublisher } from './status-publisher.ts'

/** Milliseconds between two polls of the running operations. */
const PERIOD = 100
/** Milliseconds between two dumps, because many operations may fail at once. */
const DUMP_PERIOD = 1000
/** Size in bytes of the text that lists the awaited ranks. */
const PEERS_BYTES = 64

/** Observes an engine for the flight recorder, the status page and the stall warnings. */
export class Diagnosis implements EngineObserver {
  readonly #journal: Journal
  readonly #groups: ReadonlyMap<number, EngineGroup>
  readonly #running: ReadonlySet<Task>
  readonly #links: readonly (Link | undefined)[]
  readonly #stalls: Stalls
  #publisher: StatusPublisher | undefined
  readonly #sites: CallSites | undefined
  #nextLook = 0
  #lastDump = -Infinity
  #pendingDump: string | undefined

  constructor(journal: SharedJournal, { groups, running, links }: ObservedEngine) {
    this.#journal = new Journal(journal, journal)
    this.#groups = groups
    this.#running = running
    this.#links = links
    const { page, settings } = journal
    if (page !== undefined) {
      this.#publisher = new StatusPublisher(new StatusSlot(page.buffer, page.index), 'engine')
    }
    this.#sites = settings.detail ? new CallSites(journal.rank) : undefined
    const labelOf = ({ operation }: Task): string | undefined =>
      this.#journal.recorder.textOf(operation.flight, 'label')
    this.#stalls = new Stalls({ patience: settings.stallWarning, links, labelOf })
  }

  onStart(task: Task): void {
    const { operation, group, fingerprint, posted } = task
    const isMessage = !isCollective(operation)
    // The calling thread had begun this operation before this rank learned of the failure.
    const isRefused = refuses(group, operation) && operation.begun === 0
    const departure = {
      operation,
      fingerprint,
      posted,
      peer: isMessage ? (group.ranks[operation.peer] ?? ANY_PEER) : NO_PEER,
      bytes: Math.max(0, operation.count) * dtypes[operation.dtype].bytes,
    }
    this.#journal.recorder.start(departure, isRefused ? 'refused' : 'running')
    if (!isRefused) this.#publisher?.onStart(task, this.#running.size)
    if (this.#sites !== undefined && !isMessage) this.#tellSite(task, this.#sites)
  }

  onSettled(task: Task): void {
    const { operation, started, completed, error } = task
    this.#publisher?.onSettled(task, this.#running.size)
    this.#journal.counters.publish(this.#links)
    if (error !== undefined) this.#writePeers(task)
    this.#journal.recorder.end(operation.flight, started, completed, error?.code)
  }

  onFailure(error: TsrError): void {
    const { code } = error
    if (code === 'ERR_TSR_OPERATION_ABORTED' || code === 'ERR_TSR_GROUP_DESTROYED') return
    this.#pendingDump ??= sentenceOf(error)
    this.#dumpIfDue(monotonicNow())
  }

  onNotice(link: Link, address: StreamAddress, payload: Uint8Array): void {
    const notice = decodeNotice(payload)
    if (notice?.kind === 'question') {
      const text = this.#describePlace()
      link.sendNotice(address, encodeNotice({ kind: 'answer', text }))
    } else if (notice?.kind === 'answer') {
      this.#stalls.onAnswer(link.peer, notice.text, monotonicNow())
    } else if (notice?.kind === 'site') {
      this.#sites?.set(address.group, address.sequence, link.peer, notice.site)
    }
  }

  siteOf(group: number, sequence: number, rank: number): string | undefined {
    return this.#sites?.siteOf(group, sequence, rank)
  }

  get abortedBy(): number | undefined {
    return this.#publisher?.abortedBy
  }

  look(now: number): void {
    if (now < this.#nextLook) return
    this.#nextLook = now + PERIOD
    this.#dumpIfDue(now)
    this.#journal.counters.publish(this.#links)
    for (const task of this.#running) {
      if (now - task.posted < PERIOD) continue
      this.#writePeers(task)
      this.#journal.recorder.begin(task.operation.flight, task.started)
    }
    this.#stalls.look(this.#running, now)
    this.#publisher?.look(this.#running)
  }

  /**
   * Tells all members where this rank called a collective. Each link sends the notice before the
   * first message of the collective. The peer therefore knows the call site when a message does not
   * match.
   */
  #tellSite({ operation, group }: Task, sites: CallSites): void {
    const site = this.#journal.recorder.textOf(operation.flight, 'site')
    if (site === undefined) return
    const { sequence } = operation
    const address = { space: spaces.collective, group: group.id, sequence }
    const notice = encodeNotice({ kind: 'site', site })
    for (const peer of group.ranks) this.#links[peer]?.sendNotice(address, notice)
    sites.set(group.id, sequence, this.#journal.owner.rank, site)
  }

  #dumpIfDue(now: number): void {
    if (this.#pendingDump === undefined || now - this.#lastDump < DUMP_PERIOD) return
    this.#lastDump = now
    for (const task of this.#running) this.#writePeers(task)
    this.#journal.dumpFailure(this.#pendingDump, this.#groups)
    this.#pendingDump = undefined
  }

  /** Describes what this rank runs now, or what it ran last. */
  #describePlace(): string {
    const names = [...this.#running]
      .slice(0, 3)
      .map((task) => `${task.describe()} of group ${task.group.name}`)
    if (names.length > 0) return `now in ${names.join(', ')}`
    const last = this.#journal.recorder.lastEnded()
    if (last === undefined) return 'in no operation so far'
    const seconds = ((monotonicNow() - last.completed) / 1000).toFixed(1)
    const group = this.#groups.get(last.group)?.name ?? `#${last.group}`
    const what =
      last.peer === undefined ? `${last.operation} #${last.sequence}` : describeMessage(last)
    return `in no operation; its last was ${what} of group ${group}, ${seconds} s ago`
  }

  #writePeers(task: Task): void {
    const text = task.peers().join(',')
    const whole = text.length <= PEERS_BYTES ? text.length : text.lastIndexOf(',', PEERS_BYTES)
    this.#journal.recorder.write(task.operation.flight, 'peers', text.slice(0, whole))
  }
}

function describeMessage({ name, operation, peer, tag }: FlightEntry): string {
  const direction = name === 'send' ? 'to' : 'from'
  return `${operation} ${direction} rank ${peer} of the world, tag ${tag}`
}
