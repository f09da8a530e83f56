import { monotonicNow, tsrError, type TsrError } from '@tsrun/core'
import type { Ladders } from '../algorithms/ladders.ts'
import type { Heap } from '../arena/heap.ts'
import { instantiateKernels, type Kernels } from '../kernels/kernels.ts'
import { EngineMemory } from './engine-memory.ts'
import type { EngineOptions } from './engine-options.ts'
import { Failures } from './failures.ts'
import { openFlatCollectives } from './flat-collectives.ts'
import { spaces } from './frame.ts'
import { createGroup, remember, type EngineGroup } from './group.ts'
import { Link } from './link.ts'
import { isCollective, type Operation } from '../operation.ts'
import type { EngineObserver } from './observer.ts'
import { resolveAlgorithm } from './resolve-algorithm.ts'
import { closeStreams, endTransfer } from './task-channel.ts'
import { abortError, peerError, refusalError, thrownError } from './task-errors.ts'
import { stepsOf } from './task-steps.ts'
import { describeWaiting, freeScratch, Task } from './task.ts'
import type { Transfer } from './transfer.ts'
import type { TransportCollectives } from '../transports/transport-collectives.ts'
import { Turns } from './turns.ts'

/**
 * The scheduler of one rank: runs operations as generators, resumes those whose messages moved,
 * and never blocks. Its host calls `progress` and sleeps when nothing moves.
 */
export class Engine {
  readonly rank: number
  readonly memory: EngineMemory
  readonly heap: Heap
  readonly kernels: Kernels
  readonly gone: Int32Array
  readonly ladders: Ladders | undefined
  /** By world rank; undefined for this rank. */
  readonly links: (Link | undefined)[]
  /** The receives that may have to wait for their turn. */
  readonly turns: Turns
  readonly #open: Link[]
  readonly #groups = new Map<number, EngineGroup>()
  /** Ids of groups that were removed; they are never used again. */
  readonly #left = new Set<number>()
  readonly #running = new Set<Task>()
  readonly #ready: Task[] = []
  readonly #failures: Failures
  readonly #hosts: readonly number[] | undefined
  readonly #instead: TransportCollectives | undefined
  readonly #onReady = (task: Task): void => {
    this.#ready.push(task)
  }
  readonly #observer: EngineObserver

  constructor({ heap, rank, worldSize, transport, observe, ladders, gone }: EngineOptions) {
    this.ladders = ladders
    this.rank = rank
    this.gone = gone ?? new Int32Array(worldSize)
    this.heap = heap
    this.#hosts = transport?.hosts
    this.kernels = instantiateKernels(heap.memory)
    this.memory = new EngineMemory(
      heap,
      rank,
      (to, from, bytes) => {
        this.kernels.copy(to, from, bytes)
      },
      transport?.reservedBytes,
    )
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
              this.#failures.onMismatch(stream, theirs, transfer)
            },
            onUnexpected: (stream, theirs) => {
              this.#failures.onUnexpected(stream, theirs)
              this.turns.onArrival(stream)
            },
            onWithdrawn: (transfer) => {
              this.#failures.onWithdrawn(transfer)
            },
            onFault: (link, header, payload) => {
              this.#failures.onFault(link, header, payload)
              this.turns.onClosed(link)
            },
            onNotice: (link, header, payload) => {
              this.#observer.onNotice(link, header, payload)
            },
            hasLeft: (group) => this.#left.has(group),
            onClosed: (link) => {
              Atomics.store(this.gone, link.peer, 1)
              // what has come already may complete an operation
              this.#runReady()
              this.#failures.onClosed(link)
              this.turns.onClosed(link)
            },
          }),
    )
    this.#open = this.links.filter((link) => link !== undefined)
    this.turns = new Turns(this.links, {
      onTurn: (task, turn) => {
        task.resume(turn)
      },
      onFailed: (task, cause) => {
        this.#failures.fail(task, thrownError(cause))
      },
      onDeserted: (task, link) => {
        this.#failures.fail(task, peerError(task, link, rank))
      },
    })
    this.#observer = observe({ groups: this.#groups, running: this.#running, links: this.links })
    this.#failures = new Failures({
      rank,
      links: this.links,
      groups: this.#groups,
      left: this.#left,
      running: this.#running,
      settle: (task, state) => {
        this.#settle(task, state)
      },
      observer: this.#observer,
    })
    this.#instead =
      transport?.collectives ??
      openFlatCollectives(this, transport, (peer, group, sequence, theirs) => {
        this.#failures.onMismatch(
          this.links[peer]!.stream(spaces.collective, group, sequence),
          theirs,
          undefined,
        )
      })
  }

  get hasRunning(): boolean {
    return this.#running.size > 0
  }

  /** Whether frames wait for the transport. */
  get hasOutgoing(): boolean {
    return this.#open.some((link) => !link.outbound.isEmpty && link.closed !== 'lost')
  }

  /** Whether there are ranks that neither left nor were lost. */
  get hasPeers(): boolean {
    return this.#open.some((link) => link.closed === undefined)
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    this.#groups.set(id, createGroup(id, name, ranks.indexOf(this.rank), ranks, this.#hosts))
    this.#failures.onGroupAdded(id)
  }

  removeGroup(id: number): void {
    const group = this.#groups.get(id)
    if (group === undefined) return
    this.#groups.delete(id)
    this.#left.add(id)
    this.#failures.onDestroyed(group)
    for (const link of this.#open) link.closeStreams(id)
    this.#instead?.removeGroup?.(id)
  }

  /** Ends what runs on a group, on all of its ranks, and refuses what is called later. */
  failGroup(id: number, reason: string): void {
    this.#failures.failGroup(id, reason)
  }

  /** Starts an operation; `onSettled` is called once, perhaps before this returns. */
  start(requested: Operation, onSettled: (task: Task) => void): Task {
    const group = this.#groups.get(requested.group)
    if (group === undefined) {
      throw tsrError('ERR_TSR_INTERNAL', { what: `the engine has no group ${requested.group}` })
    }
    const operation = resolveAlgorithm(requested, group, this.ladders, this.#instead)
    const task = new Task(operation, group, onSettled, this.#onReady)
    this.#running.add(task)
    this.#observer.onStart(task)
    const { failure } = group
    const isRefused =
      failure !== undefined && (!isCollective(operation) || operation.sequence >= failure.from)
    if (isRefused) {
      this.#failures.fail(task, refusalError(task, failure.error, this.rank))
      return task
    }
    if (operation.aborted) {
      this.abort(task)
      return task
    }
    if (isCollective(operation)) {
      group.active.set(operation.sequence, task)
      if (!this.#failures.checkEarlyMessages(task)) return task
    }
    task.steps = stepsOf(this, task, this.#instead)
    this.#run(task)
    return task
  }

  /**
   * Moves frames and resumes operations. Returns whether anything happened.
   *
   * @param everywhere - false: only on links from which something is expected
   */
  progress(everywhere = true): boolean {
    let moved = this.#instead?.progress() === true
    for (const link of this.#open) {
      if ((everywhere || link.isBusy) && link.move()) moved = true
    }
    return this.#runReady() || moved
  }

  /**
   * Fails what is past its deadline; returns the earliest deadline of the rest. Collectives older
   * than `patience` milliseconds ask whom they wait for what they run.
   */
  checkDeadlines(patience = 200): number {
    const now = monotonicNow()
    this.#observer.look(now)
    return this.#failures.checkDeadlines(now, patience)
  }

  abort(task: Task): void {
    this.#failures.fail(task, abortError(task, this.rank))
  }

  /** Tells all peers that this rank leaves in order. */
  sayGoodbye(): void {
    for (const link of this.#open) link.sayGoodbye()
  }

  /** For people: what runs and whom it waits for. */
  describeWaiting(): string {
    return describeWaiting(this.rank, this.#running)
  }

  /** Fails everything that runs. */
  failAll(error: TsrError): void {
    for (const task of [...this.#running]) this.#failures.fail(task, error)
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
          if (value.missing !== undefined) this.#failures.checkMissing(task, value.missing())
          task.waitingFor = value
          return
        }
      }
    } catch (cause) {
      this.#failures.fail(task, thrownError(cause))
    }
  }

  #finishTransfer(transfer: Transfer): void {
    transfer.done = true
    endTransfer(transfer)
    transfer.task.resume(transfer)
  }

  #settle(task: Task, state: 'done' | 'failed'): void {
    const { group, operation, fingerprint } = task
    task.state = state
    task.completed = monotonicNow()
    if (task.started === 0) task.started = task.completed
    task.steps = undefined
    this.#running.delete(task)
    this.#observer.onSettled(task)
    for (const transfer of task.open) {
      endTransfer(transfer)
      transfer.stream.link.cancel(transfer)
    }
    for (const at of freeScratch(task)) this.memory.release(at)
    if (operation.name === 'recv') this.turns.forget(task)
    if (isCollective(operation)) {
      group.active.delete(operation.sequence)
      remember(group, operation.sequence, fingerprint)
      if (state === 'done') {
        closeStreams(task, (stream, leftover) => {
          this.#failures.onMismatch(stream, leftover, undefined)
        })
      }
    }
    task.onSettled(task)
  }
}
