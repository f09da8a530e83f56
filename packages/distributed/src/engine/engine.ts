import { monotonicNow, tsrError, type TsrError } from '@tsrun/core'
import { algorithmsOf, chooseAlgorithm, findAlgorithm } from '../algorithms/select.ts'
import type { Heap } from '../arena/heap.ts'
import { dtypes } from '../dtype.ts'
import { instantiateKernels, type Kernels } from '../kernels/kernels.ts'
import type { Transport } from '../transports/transport.ts'
import { EngineMemory } from './engine-memory.ts'
import { decodeFault, encodeFault, faultError, type Fault } from './fault.ts'
import { spaces, type FrameHeader } from './frame.ts'
import { createGroup, recall, remember, type EngineGroup } from './group.ts'
import { Link } from './link.ts'
import {
  describeFingerprint,
  fingerprintOf,
  sameFingerprint,
  type Fingerprint,
  type Operation,
} from './operation.ts'
import { streamKey, type Stream } from './stream.ts'
import { createChannel } from './task-channel.ts'
import type { Task } from './task.ts'
import type { Transfer } from './transfer.ts'

export interface EngineOptions {
  readonly heap: Heap
  /** Rank in the world. */
  readonly rank: number
  readonly worldSize: number
  /** Undefined for a world of one. */
  readonly transport: Transport | undefined
}

/**
 * The scheduler of one rank: runs operations as generators, resumes those whose messages moved,
 * and never blocks. Its host calls `progress` and sleeps when nothing moves.
 */
export class Engine {
  readonly rank: number
  readonly memory: EngineMemory
  readonly heap: Heap
  readonly kernels: Kernels
  /** By world rank; undefined for this rank. */
  readonly links: (Link | undefined)[]
  readonly #open: Link[]
  readonly #groups = new Map<number, EngineGroup>()
  readonly #running = new Set<Task>()
  readonly #ready: Task[] = []

  constructor({ heap, rank, worldSize, transport }: EngineOptions) {
    this.rank = rank
    this.heap = heap
    this.kernels = instantiateKernels(heap.memory)
    this.memory = new EngineMemory(heap, rank, this.kernels.copy)
    this.links = Array.from({ length: worldSize }, (_, peer) =>
      peer === rank || transport === undefined
        ? undefined
        : new Link(peer, transport, this.memory, {
            onDone: (transfer) => {
              this.#finishTransfer(transfer)
            },
            onStarted: (transfer) => {
              if (transfer.task.started === 0) transfer.task.started = monotonicNow()
            },
            onMismatch: (stream, theirs, transfer) => {
              this.#onMismatch(stream, theirs, transfer)
            },
            onUnexpected: (stream, theirs) => {
              this.#onUnexpected(stream, theirs)
            },
            onFault: (link, header, payload) => {
              this.#onFault(link, header, decodeFault(payload))
            },
            onClosed: (link) => {
              this.#onClosed(link)
            },
          }),
    )
    this.#open = this.links.filter((link) => link !== undefined)
  }

  get hasRunning(): boolean {
    return this.#running.size > 0
  }

  /** Whether frames wait for the transport. */
  get hasOutgoing(): boolean {
    return this.#open.some((link) => !link.outbound.isEmpty && link.closed !== 'lost')
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    this.#groups.set(id, createGroup(id, name, ranks.indexOf(this.rank), ranks))
  }

  removeGroup(id: number): void {
    const group = this.#groups.get(id)
    if (group === undefined) return
    this.#groups.delete(id)
    for (const link of this.#open) {
      for (const stream of [...link.streams.values()]) {
        if (stream.group === id) link.closeStream(stream)
      }
    }
  }

  /** Starts an operation; `onSettled` is called once, perhaps before this returns. */
  start(requested: Operation, onSettled: (task: Task) => void): Task {
    const group = this.#groups.get(requested.group)
    if (group === undefined) {
      throw tsrError('ERR_TSR_INTERNAL', { what: `the engine has no group ${requested.group}` })
    }
    const operation = this.#resolve(requested, group)
    const posted = monotonicNow()
    const task: Task = {
      operation,
      group,
      fingerprint: fingerprintOf(operation, dtypes[operation.dtype].code),
      steps: undefined,
      posted,
      started: 0,
      completed: 0,
      deadline: posted + operation.timeout,
      state: 'running',
      error: undefined,
      waitingFor: undefined,
      open: new Set(),
      streams: [],
      scratch: [],
      onSettled,
    }
    this.#running.add(task)
    const { failure } = group
    const isRefused =
      failure !== undefined && (!isCollective(operation) || operation.sequence >= failure.from)
    if (isRefused) {
      this.fail(task, this.#refusal(task, failure.error), false)
      return task
    }
    if (isCollective(operation)) {
      group.active.set(operation.sequence, task)
      if (!this.#checkEarlyMessages(task)) return task
    }
    const algorithm = findAlgorithm(operation.name, operation.algorithm, group.ranks.length)
    task.steps = algorithm(createChannel(this, task), operation)
    this.#run(task)
    return task
  }

  /** Moves frames and resumes operations. Returns whether anything happened. */
  progress(): boolean {
    let moved = false
    for (const link of this.#open) {
      if (!link.outbound.isEmpty && link.outbound.flush()) moved = true
      if (link.inbound.pull()) moved = true
    }
    return this.#runReady() || moved
  }

  /** Fails what is past its deadline; returns the earliest deadline of the rest. */
  checkDeadlines(): number {
    const now = monotonicNow()
    let earliest = Infinity
    for (const task of this.#running) {
      if (task.deadline <= now) this.fail(task, this.#timeoutError(task), true)
      else if (task.deadline < earliest) earliest = task.deadline
    }
    return earliest
  }

  abort(task: Task): void {
    const { rank } = this
    const error = tsrError('ERR_TSR_OPERATION_ABORTED', {
      rank,
      operation: nameOf(task),
      group: task.group.name,
    })
    this.fail(task, error, true)
  }

  /** Ends an operation with an error; `tellOthers` makes the group's other ranks fail as well. */
  fail(task: Task, error: TsrError, tellOthers: boolean): void {
    if (task.state !== 'running') return
    if (isCollective(task.operation)) {
      task.group.failure ??= { from: task.operation.sequence + 1, error }
      if (tellOthers) this.#tellGroup(task, error)
    }
    task.error = error
    this.#settle(task, 'failed')
  }

  /** Tells all peers that this rank leaves in order. */
  sayGoodbye(): void {
    for (const link of this.#open) link.sayGoodbye()
  }

  /** For people: what runs and whom it waits for. */
  describeWaiting(): string {
    const tasks = [...this.#running].map((task) => {
      const peers = [...new Set([...task.open].map(({ stream }) => stream.link.peer))]
      return `${nameOf(task)} waits for rank ${peers.join(', ')}`
    })
    return `rank ${this.rank}: ${tasks.join(', ')}`
  }

  /** Fails everything that runs. */
  failAll(error: TsrError): void {
    for (const task of [...this.#running]) this.fail(task, error, false)
  }

  #resolve(operation: Operation, group: EngineGroup): Operation {
    const { name, algorithm, count, dtype } = operation
    if (algorithm !== 'auto' && algorithmsOf(name).includes(algorithm)) return operation
    const slices = name === 'reduceScatter' || name === 'allGather' ? group.ranks.length : 1
    const bytes = count * dtypes[dtype].bytes * slices
    return { ...operation, algorithm: chooseAlgorithm(name, bytes) }
  }

  #runReady(): boolean {
    const ran = this.#ready.length > 0
    for (let task = this.#ready.pop(); task !== undefined; task = this.#ready.pop()) {
      if (task.state === 'running') this.#run(task)
    }
    return ran
  }

  #run(task: Task): void {
    const { steps } = task
    if (steps === undefined) return
    try {
      for (;;) {
        const { done, value } = steps.next()
        if (task.state !== 'running') return
        if (done === true) {
          this.#settle(task, 'done')
          return
        }
        if (!value.done) {
          task.waitingFor = value
          return
        }
      }
    } catch (cause) {
      const error = isTsr(cause) ? cause : internalError(cause)
      this.fail(task, error, true)
    }
  }

  #finishTransfer(transfer: Transfer): void {
    transfer.done = true
    const { task } = transfer
    task.open.delete(transfer)
    if (task.state === 'failed') this.#releaseScratch(task)
    if (task.waitingFor === transfer) {
      task.waitingFor = undefined
      this.#ready.push(task)
    }
  }

  #settle(task: Task, state: 'done' | 'failed'): void {
    const { group, operation, fingerprint } = task
    task.state = state
    task.completed = monotonicNow()
    if (task.started === 0) task.started = task.completed
    task.steps = undefined
    this.#running.delete(task)
    for (const transfer of task.open) {
      transfer.stream.link.cancel(transfer)
      if (!transfer.leaving) task.open.delete(transfer)
    }
    this.#releaseScratch(task)
    if (isCollective(operation)) {
      group.active.delete(operation.sequence)
      remember(group, operation.sequence, fingerprint)
      if (state === 'done') this.#closeStreams(task)
    }
    task.onSettled(task)
  }

  /** Gives scratch back once nothing leaves from it any more. */
  #releaseScratch(task: Task): void {
    if (task.open.size > 0) return
    for (const at of task.scratch.splice(0)) this.memory.release(at)
  }

  #closeStreams(task: Task): void {
    for (const stream of task.streams) {
      const leftover = stream?.link.closeStream(stream)
      if (stream !== undefined && leftover !== undefined) {
        this.#onMismatch(stream, leftover, undefined)
      }
    }
  }

  /** Compares messages that came before this collective was called with it. */
  #checkEarlyMessages(task: Task): boolean {
    const { group, operation, fingerprint } = task
    const key = streamKey(spaces.collective, group.id, operation.sequence)
    for (const peer of group.ranks) {
      const stream = this.links[peer]?.streams.get(key)
      const odd = stream?.unexpected
        .concat(stream.clearances.map((clearance) => ({ ...clearance, at: -1 })))
        .find((message) => !sameFingerprint(message.fingerprint, fingerprint))
      if (stream !== undefined && odd !== undefined) {
        this.#onMismatch(stream, odd.fingerprint, undefined)
        return false
      }
    }
    return true
  }

  #onUnexpected(stream: Stream, theirs: Fingerprint): void {
    if (stream.space !== spaces.collective) return
    const group = this.#groups.get(stream.group)
    const running = group?.active.get(stream.sequence)
    const mine =
      running?.fingerprint ?? (group === undefined ? undefined : recall(group, stream.sequence))
    if (mine === undefined || group?.failure !== undefined) return
    if (!sameFingerprint(mine, theirs)) this.#onMismatch(stream, theirs, undefined)
  }

  #onMismatch(stream: Stream, theirs: Fingerprint, transfer: Transfer | undefined): void {
    const group = this.#groups.get(stream.group)
    const task = transfer?.task ?? group?.active.get(stream.sequence)
    const mine = transfer?.fingerprint ?? task?.fingerprint ?? (group && recall(group, stream.sequence))
    if (group === undefined || mine === undefined) return
    const { link, space, sequence } = stream
    const error = tsrError('ERR_TSR_MISMATCH', {
      group: group.name,
      sequence,
      rank: this.rank,
      mine: describeFingerprint(mine),
      peer: link.peer,
      theirs: describeFingerprint(theirs),
    })
    this.#tell(link, space, group.id, sequence, { kind: 'mismatch', mine, theirs })
    if (task === undefined) group.failure ??= { from: sequence + 1, error }
    else this.fail(task, error, true)
  }

  #onFault(link: Link, header: FrameHeader, fault: Fault): void {
    const group = this.#groups.get(header.group)
    if (group === undefined) return
    const { space, sequence } = header
    const tasks =
      space === spaces.collective
        ? [group.active.get(sequence)]
        : [...this.#running].filter((task) => concerns(task, link, header))
    const error = (operation: string): TsrError =>
      faultError(fault, { group: group.name, sequence, rank: this.rank, peer: link.peer, operation })
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

  #onClosed(link: Link): void {
    for (const task of [...this.#running]) {
      for (const transfer of task.open) {
        if (transfer.stream.link !== link) continue
        this.fail(task, this.peerError(task, link), true)
        break
      }
    }
  }

  /** The error of an operation that needs a peer that is gone. */
  peerError(task: Task, link: Link): TsrError {
    const facts = {
      peer: link.peer,
      rank: this.rank,
      operation: nameOf(task),
      group: task.group.name,
    }
    if (link.closed === 'left') return tsrError('ERR_TSR_PEER_LEFT', facts)
    return tsrError('ERR_TSR_PEER_LOST', { ...facts, reason: link.closeReason })
  }

  #refusal(task: Task, error: TsrError): TsrError {
    const facts = { rank: this.rank, operation: nameOf(task), group: task.group.name }
    if (error.code === 'ERR_TSR_MISMATCH') return error
    return tsrError('ERR_TSR_GROUP_FAILED', { ...facts, reason: error.message }, { cause: error })
  }

  #timeoutError(task: Task): TsrError {
    const peers = [...new Set([...task.open].map(({ stream }) => stream.link.peer))]
    return tsrError('ERR_TSR_OPERATION_TIMEOUT', {
      rank: this.rank,
      operation: nameOf(task),
      group: task.group.name,
      milliseconds: task.operation.timeout,
      peers: peers.sort((a, b) => a - b).join(', '),
    })
  }

  #tellGroup(task: Task, error: TsrError): void {
    const { group, operation } = task
    for (const peer of group.ranks) {
      const link = this.links[peer]
      if (link === undefined) continue
      const fault: Fault = { kind: 'failed', reason: error.message }
      this.#tell(link, spaces.collective, group.id, operation.sequence, fault)
    }
  }

  #tell(link: Link, space: number, group: number, sequence: number, fault: Fault): void {
    const bytes = encodeFault(fault)
    const at = this.memory.allocate(bytes.length)
    this.heap.bytes.set(bytes, at)
    link.sendFault(space, group, sequence, at, bytes.length)
    this.memory.release(at)
  }
}

export function isCollective({ name }: Operation): boolean {
  return name !== 'send' && name !== 'recv'
}

/** For people: `allReduce(sum) float32[4096] by ring, #12`. */
function nameOf({ operation, fingerprint }: Task): string {
  if (isCollective(operation)) return `${describeFingerprint(fingerprint)} #${operation.sequence}`
  const { name, peer, tag, dtype, count } = operation
  const direction = name === 'send' ? 'to' : 'from'
  return `${name} ${dtype}[${count}] ${direction} rank ${peer}, tag ${tag}`
}

function concerns({ operation, open }: Task, link: Link, { sequence, group }: FrameHeader): boolean {
  if (isCollective(operation) || operation.group !== group) return false
  return [...open].some(({ stream }) => stream.link === link && stream.sequence === sequence)
}

function isTsr(error: unknown): error is TsrError {
  return typeof error === 'object' && error !== null && 'facts' in error && 'code' in error
}

function internalError(cause: unknown): TsrError {
  const what = cause instanceof Error ? cause.message : String(cause)
  return tsrError('ERR_TSR_INTERNAL', { what }, { cause })
}
