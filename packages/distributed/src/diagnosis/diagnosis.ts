import { monotonicNow, type TsrError } from '@tsrun/core'
import type { FlightGroup } from '@tsrun/telemetry'
import { dtypes } from '../dtype.ts'
import { isCollective } from '../engine/operation.ts'
import { sentenceOf } from '../engine/task-errors.ts'
import { peersOf, type Task } from '../engine/task.ts'
import { ANY_PEER, NO_PEER } from './flight-ring.ts'
import { Journal, type SharedJournal } from './journal.ts'

/** Milliseconds between two looks at what runs. */
const PERIOD = 100
/** Milliseconds between two dumps: much may fail at once. */
const DUMP_PERIOD = 1000
/** Bytes of the list of ranks that an operation waits for. */
const PEERS_BYTES = 64

/** What the engine tells of its operations, for the flight recorder. */
export class Diagnosis {
  readonly #journal: Journal
  readonly #running: ReadonlySet<Task>
  #nextLook = 0
  #lastDump = -Infinity
  #pendingDump: string | undefined

  constructor(
    journal: SharedJournal,
    groups: Map<number, FlightGroup>,
    running: ReadonlySet<Task>,
  ) {
    this.#journal = new Journal(journal, groups, journal.buffer)
    this.#running = running
  }

  onStart({ operation, group, fingerprint, posted }: Task): void {
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
  }

  /** Before its transfers are cancelled. */
  onSettled(task: Task): void {
    const { operation, started, completed, error } = task
    if (error !== undefined) this.#writePeers(task)
    this.#journal.ring.end(operation.flight, started, completed, error?.code)
  }

  /** An operation, or a group, has failed, and all that fails with it. */
  onFailure(error: TsrError): void {
    if (error.code === 'ERR_TSR_OPERATION_ABORTED') return
    this.#pendingDump ??= sentenceOf(error)
    this.#dumpIfDue(monotonicNow())
  }

  /** Comes by while operations run. */
  look(now: number): void {
    if (now < this.#nextLook) return
    this.#nextLook = now + PERIOD
    this.#dumpIfDue(now)
    for (const task of this.#running) {
      if (now - task.posted < PERIOD) continue
      this.#writePeers(task)
      this.#journal.ring.begin(task.operation.flight, task.started)
    }
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
