import { monotonicNow, tsrError, type TsrError } from '@tsrun/core'
import type { MatchedReceive, Resumable, Waited } from '../algorithms/channel.ts'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { Heap } from '../arena/heap.ts'
import type { Kernels } from '../kernels/kernels.ts'
import {
  ANY_SOURCE,
  describeFingerprint,
  fingerprintOf,
  isCollective,
  isNative,
  type Fingerprint,
  type Operation,
} from '../operation.ts'
import type { RunningOperation } from '../transports/transport.ts'
import type { Failures } from './failures.ts'
import { hasDeparted, type EngineGroup } from './group.ts'
import type { MatchingQueues } from './matching-queue.ts'
import type { MessageListener } from './message-tap.ts'
import { spaces } from './messages/frame.ts'
import type { Link } from './messages/link.ts'
import type { EngineMemory } from './messages/memory.ts'
import type { Stream, Transfer } from './messages/stream.ts'
import { peerError, withdrawnError } from './task-errors.ts'

/** The parts of the engine that tasks use. */
export interface TaskContext {
  /** Rank in the world. */
  readonly rank: number
  /** The link to each world rank; undefined for this rank. */
  readonly links: readonly (Link | undefined)[]
  readonly heap: Heap
  readonly memory: EngineMemory
  readonly kernels: Kernels
  readonly tuning: TuningTable
  readonly matching: MatchingQueues
  readonly failures: Failures
  readonly onMessage: MessageListener | undefined
  /** Called when a task can resume. */
  onReady(task: Task): void
}

/**
 * An operation that the engine runs. Its algorithm sends and receives messages through the task.
 * The operation has its own stream on each link. Times are from `monotonicNow()`.
 */
export class Task implements RunningOperation {
  readonly operation: Operation
  readonly group: EngineGroup
  readonly fingerprint: Fingerprint
  readonly engine: TaskContext
  steps: Resumable | undefined
  /** The steps of the previous run, if they can be run again. */
  former: Resumable | undefined
  posted = monotonicNow()
  /** When the first message moved; 0 if none has. */
  started = 0
  completed = 0
  deadline: number
  /** Whether the task has asked the awaited ranks what they run. */
  hasInquired = false
  state: 'running' | 'done' | 'failed' = 'running'
  error: TsrError | undefined
  waitingFor: Waited | undefined
  /** Pending transfers of the task. */
  readonly open = new Set<TaskTransfer>()
  readonly onSettled: (task: Task) => void
  /** Streams of a collective, by group rank. */
  readonly #streams: (Stream | undefined)[] = []
  readonly #scratch: number[] = []

  constructor(
    engine: TaskContext,
    operation: Operation,
    group: EngineGroup,
    onSettled: (task: Task) => void,
  ) {
    this.engine = engine
    this.operation = operation
    this.group = group
    this.fingerprint = fingerprintOf(operation)
    this.deadline = this.posted + operation.timeout
    this.onSettled = onSettled
  }

  /** Prepares another run at another position in the group. */
  restart({ sequence, flight, aborted, begun }: Operation): void {
    const operation = this.operation as { -readonly [Name in keyof Operation]: Operation[Name] }
    operation.sequence = sequence
    operation.flight = flight
    operation.aborted = aborted
    operation.begun = begun
    this.posted = monotonicNow()
    this.deadline = this.posted + this.operation.timeout
    this.started = this.completed = 0
    this.hasInquired = false
    this.state = 'running'
    this.error = this.waitingFor = undefined
    // Check first, because reading `length` is cheaper than assigning it.
    if (this.#streams.length > 0) this.#streams.length = 0
    if (this.#scratch.length > 0) this.#scratch.length = 0
  }

  get rank(): number {
    return this.group.rank
  }

  get size(): number {
    return this.group.ranks.length
  }

  get hosts(): readonly number[] {
    return this.group.hosts
  }

  get heap(): Heap {
    return this.engine.heap
  }

  get kernels(): Kernels {
    return this.engine.kernels
  }

  get tuning(): TuningTable {
    return this.engine.tuning
  }

  send(to: number, at: number, bytes: number, count?: number): Transfer {
    const stream = this.#streamTo(to)
    const transfer = this.#begin(stream, stream.nextSend++, at, bytes, count)
    this.#requirePresent(stream.link)
    stream.link.sends.start(transfer)
    return transfer
  }

  receive(from: number, at: number, bytes: number, count?: number): Transfer {
    const stream = this.#streamTo(from)
    const transfer = this.#begin(stream, stream.nextReceive++, at, bytes, count)
    stream.link.receives.start(transfer)
    if (!transfer.done) this.#requirePresent(stream.link)
    return transfer
  }

  receiveMatched(from: number, at: number, bytes: number): MatchedReceive {
    return this.engine.matching.post(this, from, (source) => this.receive(source, at, bytes))
  }

  skip(from: number): void {
    const stream = this.#streamTo(from)
    const transfer = this.#begin(stream, stream.nextReceive++, 0, 0)
    transfer.end()
    transfer.cancelled = true
    stream.link.receives.start(transfer)
  }

  scratch(bytes: number): number {
    const at = this.engine.memory.allocateScratch(bytes)
    this.#scratch.push(at)
    return at
  }

  resume(waited: Waited): void {
    if (this.waitingFor !== waited) return
    this.waitingFor = undefined
    this.engine.onReady(this)
  }

  /** Releases the messages, the scratch memory and the queue position of the task. */
  release(): void {
    for (const transfer of this.open) {
      transfer.end()
      transfer.stream.link.cancel(transfer)
    }
    // After a failure, libmpi may still use the scratch memory, so never free it.
    if (this.state === 'done' || !isNative(this.operation)) {
      for (const at of this.#scratch) this.engine.memory.release(at)
    }
    if (this.operation.name === 'recv') this.engine.matching.remove(this)
  }

  /** Closes the streams of a collective. Messages without a receive belong to another call. */
  closeStreams(): void {
    for (const stream of this.#streams) {
      const leftover = stream?.link.closeStream(stream)
      if (stream !== undefined && leftover !== undefined)
        this.engine.failures.onMismatch(stream, leftover)
    }
  }

  /** Returns the world ranks with which the task has pending messages. */
  peers(): number[] {
    const { name, peer } = this.operation
    const peers = new Set([...this.open].map(({ stream }) => stream.link.peer))
    for (const missing of this.waitingFor?.missing?.() ?? []) peers.add(missing)
    if (peers.size === 0 && (name === 'recv' || isNative(this.operation))) {
      const isAny = name !== 'recv' || peer === ANY_SOURCE
      for (const [rank, member] of this.group.ranks.entries()) {
        if (isAny ? rank !== this.group.rank : rank === peer) peers.add(member)
      }
    }
    return [...peers].sort((a, b) => a - b)
  }

  /** Whether the task needs a peer (world rank) to complete. */
  needs(peer: number): boolean {
    if (this.waitingFor?.missing?.().includes(peer) === true) return true
    return [...this.open].some(({ stream }) => stream.link.peer === peer)
  }

  /** Describes the operation, as in `allReduce(sum) float32[4096] by ring #12`. */
  describe(): string {
    const { operation, fingerprint } = this
    if (isCollective(operation)) {
      return `${describeFingerprint(fingerprint)} #${operation.sequence}`
    }
    const { name, peer, tag, dtype, count } = operation
    const direction = name === 'send' ? 'to' : 'from'
    const other = peer === ANY_SOURCE ? 'any rank' : `rank ${peer}`
    return `${name} ${dtype}[${count}] ${direction} ${other}, tag ${tag}`
  }

  /** Describes the operation and the ranks that it waits for. */
  describeWaiting(): string {
    const peers = this.peers()
    return `${this.describe()}${peers.length === 0 ? '' : ` (waiting for rank ${peers.join(', ')})`}`
  }

  #streamTo(peer: number): Stream {
    const known = this.#streams[peer]
    if (known !== undefined) return known
    const { group, operation, engine } = this
    const world = group.ranks[peer]
    const link = world === undefined ? undefined : engine.links[world]
    if (link === undefined) {
      const what = `there is no link to rank ${peer} of group ${group.name}`
      throw tsrError('ERR_TSR_INTERNAL', { what })
    }
    if (!isCollective(operation)) return link.stream(spaces.message, group.id, operation.tag)
    const stream = link.stream(spaces.collective, group.id, operation.sequence)
    this.#streams[peer] = stream
    return stream
  }

  #begin(stream: Stream, index: number, at: number, bytes: number, count?: number): TaskTransfer {
    const fingerprint = count === undefined ? this.fingerprint : { ...this.fingerprint, count }
    const transfer = new TaskTransfer(this, stream, index, at, bytes, fingerprint)
    this.open.add(transfer)
    stream.link.transfers++
    return transfer
  }

  /** @throws if the peer has departed from this group */
  #requirePresent(link: Link): void {
    if (hasDeparted(this.group, link)) throw peerError(this, link, this.engine.rank)
  }
}

/** A message of a task. */
export class TaskTransfer implements Transfer {
  readonly task: Task
  readonly stream: Stream
  index: number
  readonly at: number
  readonly bytes: number
  readonly fingerprint: Fingerprint
  done = false
  cancelled = false

  constructor(
    task: Task,
    stream: Stream,
    index: number,
    at: number,
    bytes: number,
    fingerprint: Fingerprint,
  ) {
    this.task = task
    this.stream = stream
    this.index = index
    this.at = at
    this.bytes = bytes
    this.fingerprint = fingerprint
  }

  /** Marks the message as no longer awaited. */
  end(): void {
    if (this.task.open.delete(this)) this.stream.link.transfers--
  }

  onStarted(): void {
    if (this.task.started === 0) this.task.started = monotonicNow()
  }

  onDone(): void {
    this.done = true
    this.end()
    this.task.resume(this)
  }

  onWithdrawn(): void {
    const { task, stream } = this
    task.engine.failures.fail(task, withdrawnError(task, stream.link))
  }

  onMismatch(theirs: Fingerprint): void {
    this.task.engine.failures.onMismatch(this.stream, theirs, this)
  }
}
