import { monotonicNow, type TsrError } from '@tsrun/core'
import { StatusSlot } from '@tsrun/telemetry'
import { dtypes } from '../dtype.ts'
import { spaces, type FrameHeader } from '../engine/frame.ts'
import type { Link } from '../engine/link.ts'
import { isCollective } from '../operation.ts'
import type { EngineObserver, ObservedEngine } from '../engine/observer.ts'
import { sentenceOf } from '../engine/task-errors.ts'
import { nameOf, peersOf, type Task } from '../engine/task.ts'
import { ANY_PEER, NO_PEER } from './flight-ring.ts'
import { Journal, type SharedJournal } from './journal.ts'
import { decodeNotice, encodeNotice } from './notice.ts'
import { Publisher } from './publisher.ts'
import { Sites } from './sites.ts'
import { copyStatus } from './status.ts'
import { Stalls } from './stalls.ts'

/** Milliseconds between two looks at what runs. */
const PERIOD = 100
/** Milliseconds between two dumps: much may fail at once. */
const DUMP_PERIOD = 1000
/** Bytes of the list of ranks that an operation waits for. */
const PEERS_BYTES = 64

/** What the engine tells of its operations, for the flight recorder. */
export class Diagnosis implements EngineObserver {
  readonly #journal: Journal
  readonly #running: ReadonlySet<Task>
  readonly #links: readonly (Link | undefined)[]
  readonly #stalls: Stalls
  #publisher: Publisher | undefined
  readonly #sites: Sites | undefined
  /** For those who ask: the last operation that ended. */
  #last: Task | undefined
  #nextLook = 0
  #lastDump = -Infinity
  #pendingDump: string | undefined

  constructor(journal: SharedJournal, { groups, running, links }: ObservedEngine) {
    this.#journal = new Journal(journal, groups, journal)
    this.#running = running
    const { page } = journal
    if (page !== undefined) {
      this.#publisher = new Publisher(new StatusSlot(page.buffer, page.index))
      copyStatus(page)
    }
    this.#links = links
    const { rank, settings } = journal
    this.#sites = settings.detail ? new Sites(rank) : undefined
    const labelOf = ({ operation }: Task): string | undefined =>
      this.#journal.ring.textOf(operation.flight, 'label')
    this.#stalls = new Stalls({ patience: settings.stallWarning, links, labelOf })
  }

  onStart(task: Task): void {
    const { operation, group, fingerprint, posted } = task
    const { failure } = group
    const isMessage = !isCollective(operation)
    const isRefused = failure !== undefined && (isMessage || operation.sequence >= failure.from)
    const departure = {
      operation,
      fingerprint,
      posted,
      peer: isMessage ? (group.ranks[operation.peer] ?? ANY_PEER) : NO_PEER,
      bytes: Math.max(0, operation.count) * dtypes[operation.dtype].bytes,
    }
    this.#journal.ring.start(departure, isRefused ? 'refused' : 'running')
    if (!isRefused) this.#publisher?.onStart(task, this.#running.size)
    if (this.#sites !== undefined && !isMessage) this.#tellSite(task, this.#sites)
  }

  /** Before its transfers are cancelled. */
  onSettled(task: Task): void {
    const { operation, started, completed, error } = task
    this.#last = task
    this.#publisher?.onSettled(task, this.#running.size)
    this.#journal.counters.publish(this.#links)
    if (error !== undefined) this.#writePeers(task)
    this.#journal.ring.end(operation.flight, started, completed, error?.code)
  }

  /** An operation, or a group, has failed, and all that fails with it. */
  onFailure(error: TsrError): void {
    const { code } = error
    if (code === 'ERR_TSR_OPERATION_ABORTED' || code === 'ERR_TSR_GROUP_DESTROYED') return
    this.#pendingDump ??= sentenceOf(error)
    this.#dumpIfDue(monotonicNow())
  }

  onNotice(link: Link, header: FrameHeader, payload: Uint8Array): void {
    const notice = decodeNotice(payload)
    if (notice?.kind === 'question') {
      const text = describePlace(this.#running, this.#last)
      link.sendNotice(header, encodeNotice({ kind: 'answer', text }))
    } else if (notice?.kind === 'answer') {
      this.#stalls.onAnswer(link.peer, notice.text, monotonicNow())
    } else if (notice?.kind === 'site') {
      this.#sites?.set(header.group, header.sequence, link.peer, notice.site)
    }
  }

  siteOf(group: number, sequence: number, rank: number): string | undefined {
    return this.#sites?.siteOf(group, sequence, rank)
  }

  /** The rank whose end ends the job, as the launcher says. */
  get abortedBy(): number | undefined {
    return this.#publisher?.abortedBy
  }

  /** Comes by while operations run. */
  look(now: number): void {
    if (now < this.#nextLook) return
    this.#nextLook = now + PERIOD
    this.#dumpIfDue(now)
    this.#journal.counters.publish(this.#links)
    for (const task of this.#running) {
      if (now - task.posted < PERIOD) continue
      this.#writePeers(task)
      this.#journal.ring.begin(task.operation.flight, task.started)
    }
    this.#stalls.look(this.#running, now)
    this.#publisher?.look(this.#running)
  }

  /** Before its first message, on the same links: so it is there when the message does not fit. */
  #tellSite({ operation, group }: Task, sites: Sites): void {
    const site = this.#journal.ring.textOf(operation.flight, 'site')
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
    this.#journal.dumpFailure(this.#pendingDump)
    this.#pendingDump = undefined
  }

  #writePeers(task: Task): void {
    const text = peersOf(task).join(',')
    const whole = text.length <= PEERS_BYTES ? text.length : text.lastIndexOf(',', PEERS_BYTES)
    this.#journal.ring.write(task.operation.flight, 'peers', text.slice(0, whole))
  }
}

/** For people: what a rank runs now, or ran last. */
function describePlace(running: ReadonlySet<Task>, last: Task | undefined): string {
  const names = [...running]
    .slice(0, 3)
    .map((task) => `${nameOf(task)} of group ${task.group.name}`)
  if (names.length > 0) return `now in ${names.join(', ')}`
  if (last === undefined) return 'in no operation so far'
  const seconds = ((monotonicNow() - last.completed) / 1000).toFixed(1)
  return `in no operation; its last was ${nameOf(last)} of group ${last.group.name}, ${seconds} s ago`
}
