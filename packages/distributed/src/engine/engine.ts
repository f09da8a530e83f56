import { monotonicNow, tsrError, type TsrError } from '@tsrun/core'
import type { Resumable } from '../algorithms/channel.ts'
import { findAlgorithm, resolveAlgorithm } from '../algorithms/select.ts'
import { builtInTuning, type TuningTable } from '../algorithms/tuning-table.ts'
import type { Heap } from '../arena/heap.ts'
import { instantiateKernels, type Kernels } from '../kernels/kernels.ts'
import { isCollective, isWithoutMessages, type Operation } from '../operation.ts'
import { createEpochs, Epochs } from '../shared/epochs.ts'
import type { TransportCollectives } from '../transports/transport-collectives.ts'
import type { Transport } from '../transports/transport.ts'
import { createFailures, type Failures } from './failures.ts'
import { sharedCollectives } from './shared-collectives.ts'
import { createGroup, refuses, remember, type EngineGroup } from './group.ts'
import { createMatching, type MatchingQueues } from './matching-queue.ts'
import { spaces } from './messages/frame.ts'
import { Link, type LinkEvents } from './messages/link.ts'
import { EngineMemory } from './messages/memory.ts'
import { tapped, type MessageListener } from './message-tap.ts'
import type { EngineObserver, ObservedEngine } from './observer.ts'
import { abortError, peerError, thrownError } from './task-errors.ts'
import { Task, type TaskContext } from './task.ts'

export interface EngineOptions {
  readonly heap: Heap
  /** Rank of this process in the world. */
  readonly rank: number
  readonly worldSize: number
  /** The connections to the other ranks. Undefined for a world of one, and for a fake world. */
  readonly transport: Transport | undefined
  /** Runs operations instead of the transport. */
  readonly collectives?: TransportCollectives | undefined
  readonly observe: (engine: ObservedEngine) => EngineObserver
  /** The table for choosing algorithms; the same on all ranks. Default: the built-in thresholds. */
  readonly tuning?: TuningTable | undefined
  /**
   * One word per world rank: 0 while the rank is present. The engine writes it, and any thread may
   * read it.
   */
  readonly gone?: Int32Array
  /**
   * Memory for the epochs of groups, from `createEpochs`. Required if another thread also enters
   * epochs.
   */
  readonly epochs?: Int32Array | undefined
  /** Called for each message that an operation sends or receives. It must not throw. */
  readonly onMessage?: MessageListener | undefined
}

/**
 * The scheduler of one rank. It runs operations as generators, resumes them when their messages
 * have moved, and never blocks. Its runner calls `progress` and sleeps when nothing moves.
 */
export class Engine implements TaskContext {
  readonly rank: number
  readonly heap: Heap
  readonly memory: EngineMemory
  readonly kernels: Kernels
  readonly tuning: TuningTable
  readonly gone: Int32Array
  /** Memory for the epochs of groups; undefined if ranks share no slots. */
  readonly epochs: Int32Array | undefined
  /** The link to each world rank; undefined for this rank. */
  readonly links: readonly (Link | undefined)[]
  readonly matching: MatchingQueues
  readonly #peers: readonly Link[]
  readonly #groups = new Map<number, EngineGroup>()
  /** Ids of groups that this rank has destroyed. An id is never used again. */
  readonly #destroyed = new Set<number>()
  readonly #running = new Set<Task>()
  readonly #ready: Task[] = []
  readonly failures: Failures
  readonly #transport: Transport | undefined
  readonly #collectives: TransportCollectives | undefined
  readonly #observer: EngineObserver
  readonly #onMessage: MessageListener | undefined

  constructor(options: EngineOptions) {
    const { heap, rank, worldSize, transport, observe, tuning = builtInTuning, gone } = options
    this.tuning = tuning
    this.rank = rank
    this.gone = gone ?? new Int32Array(worldSize)
    this.heap = heap
    const { slots } = transport ?? {}
    this.epochs = slots && (options.epochs ?? createEpochs(slots.exposingGroups))
    this.#transport = transport
    this.#onMessage = options.onMessage
    this.kernels = instantiateKernels(heap.memory)
    this.memory = new EngineMemory(heap, rank, this.kernels.copy, transport?.reservedBytes)
    const events = this.#linkEvents()
    this.links = Array.from({ length: worldSize }, (_, peer) =>
      peer === rank || transport === undefined
        ? undefined
        : new Link(peer, transport, this.memory, events),
    )
    this.#peers = this.links.filter((link) => link !== undefined)
    this.matching = createMatching(this.links, {
      onFailed: (task, cause) => {
        this.failures.fail(task, thrownError(cause))
      },
      onDeparted: (task, link) => {
        this.failures.fail(task, peerError(task, link, rank))
      },
    })
    this.#observer = observe({ groups: this.#groups, running: this.#running, links: this.links })
    this.failures = createFailures({
      rank,
      links: this.links,
      groups: this.#groups,
      destroyed: this.#destroyed,
      running: this.#running,
      settle: (task, state) => {
        this.#settle(task, state)
      },
      observer: this.#observer,
    })
    this.#collectives =
      options.collectives ?? transport?.collectives ?? this.#openSharedCollectives(transport)
  }

  get hasRunning(): boolean {
    return this.#running.size > 0
  }

  get hasOutgoing(): boolean {
    for (const link of this.#peers) if (link.hasOutgoing && link.closed !== 'lost') return true
    return false
  }

  /** Whether any peer is still connected. */
  get hasPeers(): boolean {
    return this.#peers.some((link) => link.closed === undefined)
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    const { slots, hosts } = this.#transport ?? {}
    const epochs = this.epochs && Epochs.of(this.epochs, id)
    const rank = ranks.indexOf(this.rank)
    this.#groups.set(id, createGroup(id, name, rank, ranks, hosts, epochs, slots))
    this.failures.onGroupAdded(id)
  }

  removeGroup(id: number): void {
    const group = this.#groups.get(id)
    if (group === undefined) return
    this.#groups.delete(id)
    this.#destroyed.add(id)
    this.failures.onDestroyed(group)
    for (const link of this.#peers) link.closeStreams(id)
    this.#collectives?.removeGroup?.(id)
  }

  /** Fails the operations of a group on all of its ranks, and refuses later operations. */
  failGroup(id: number, reason: string): void {
    this.failures.failGroup(id, reason)
  }

  /** Starts an operation. Calls `onSettled` once, perhaps before returning. */
  start(requested: Operation, onSettled: (task: Task) => void): Task {
    const group = this.#groups.get(requested.group)
    if (group === undefined) {
      throw tsrError('ERR_TSR_INTERNAL', { what: `the engine has no group ${requested.group}` })
    }
    const { layout, ranks } = group
    const operation =
      this.#collectives?.take(requested, group) ??
      resolveAlgorithm(requested, ranks.length, layout, this.tuning)
    const task = new Task(this, operation, group, onSettled)
    this.#begin(task)
    return task
  }

  /** Runs a completed operation again, at the position in the group that `operation` gives. */
  restart(task: Task, operation: Operation): void {
    task.restart(operation)
    this.#begin(task)
  }

  /**
   * Moves frames and resumes operations. Returns whether anything moved.
   *
   * @param everywhere - whether to poll all links, or only those that expect data
   */
  progress(everywhere = true): boolean {
    let moved = this.#collectives?.progress() === true
    for (const link of this.#peers) {
      if ((everywhere || link.isBusy) && link.move()) moved = true
    }
    return this.#runReady() || moved
  }

  /**
   * Fails operations past their deadline. Returns the earliest deadline of the remaining
   * operations. A collective older than `patience` milliseconds asks the awaited ranks what they
   * run.
   */
  checkDeadlines(patience = 200): number {
    const now = monotonicNow()
    this.#observer.look(now)
    return this.failures.checkDeadlines(now, patience)
  }

  abort(task: Task): void {
    this.failures.fail(task, abortError(task, this.rank))
  }

  /** Sends a close frame to all peers, because this rank leaves normally. */
  sayGoodbye(): void {
    for (const link of this.#peers) link.sayGoodbye()
  }

  /** Describes the running operations and the ranks that they wait for. */
  describeWaiting(): string {
    const tasks = Array.from(
      this.#running,
      (task) => `${task.describe()} waits for rank ${task.peers().join(', ')}`,
    )
    return `rank ${this.rank}: ${tasks.join(', ')}`
  }

  /** Fails all running operations. */
  failAll(error: TsrError): void {
    for (const task of [...this.#running]) this.failures.fail(task, error)
  }

  onReady(task: Task): void {
    this.#ready.push(task)
  }

  #linkEvents(): LinkEvents {
    return {
      onUnexpected: (stream, theirs) => {
        this.failures.onUnexpected(stream, theirs)
        this.matching.onArrival(stream)
      },
      onFault: (link, header, payload) => {
        this.failures.onFault(link, header, payload)
        this.matching.onClosed(link)
      },
      onNotice: (link, header, payload) => {
        this.#observer.onNotice(link, header, payload)
      },
      isAnyAwaited: () => this.matching.isWaiting,
      hasLeft: (group) => this.#destroyed.has(group),
      onClosed: (link) => {
        Atomics.store(this.gone, link.peer, 1)
        // Messages that have already arrived may complete an operation.
        this.#runReady()
        this.failures.onClosed(link)
        this.matching.onClosed(link)
      },
    }
  }

  #openSharedCollectives(transport: Transport | undefined): TransportCollectives | undefined {
    const slots = transport?.slots
    const { rank, kernels, links, tuning, epochs } = this
    if (slots === undefined || epochs === undefined) return undefined
    return sharedCollectives({
      slots,
      epochs,
      get: (...copied) => {
        transport!.get!(...copied)
      },
      rank,
      kernels,
      tuning,
      waiting: [],
      onMismatch: ({ group, state }, peer, { sequence }, theirs) => {
        // Ignore an inquiry from a peer that is at another position.
        if (theirs.sequence !== sequence || state !== 'running') return
        const stream = links[peer]!.stream(spaces.collective, group.id, sequence)
        this.failures.onMismatch(stream, theirs.fingerprint)
      },
    })
  }

  #begin(task: Task): void {
    const { group, operation } = task
    this.#running.add(task)
    this.#observer.onStart(task)
    if (group.failure !== undefined && refuses(group, operation)) {
      this.failures.refuse(task, group.failure.error)
      return
    }
    if (operation.aborted) {
      this.abort(task)
      return
    }
    if (isCollective(operation)) {
      group.active.set(operation.sequence, task)
      if (!this.failures.checkEarlyMessages(task)) return
    }
    const { former } = task
    if (former !== undefined) former.restart!()
    task.steps = former ?? this.#bodyOf(task)
    this.#run(task)
  }

  #bodyOf(task: Task): Resumable {
    const { group, operation } = task
    if (this.#collectives !== undefined && isWithoutMessages(operation)) {
      return this.#collectives.run(task)
    }
    const algorithm = findAlgorithm(operation, group.ranks.length)
    const listener = this.#onMessage
    return listener === undefined ? algorithm(task, operation) : tapped(algorithm, task, listener)
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
          if (value.missing !== undefined) this.failures.requirePresent(task, value.missing())
          task.waitingFor = value
          return
        }
      }
    } catch (cause) {
      this.failures.fail(task, thrownError(cause))
    }
  }

  #settle(task: Task, state: 'done' | 'failed'): void {
    const { group, operation, fingerprint } = task
    task.state = state
    task.completed = monotonicNow()
    if (task.started === 0) task.started = task.completed
    if (state === 'failed') task.steps?.abandon?.()
    task.former = task.steps?.restart === undefined ? undefined : task.steps
    task.steps = undefined
    this.#running.delete(task)
    this.#observer.onSettled(task)
    task.release()
    if (isCollective(operation)) {
      group.active.delete(operation.sequence)
      remember(group, operation.sequence, fingerprint)
      if (state === 'done') task.closeStreams()
    }
    task.onSettled(task)
  }
}
