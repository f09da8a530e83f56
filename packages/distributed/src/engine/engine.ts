import { monotonicNow, tsrError, type TsrError } from '@tsrun/core'
import type { Resumable } from '../algorithms/channel.ts'
import { findAlgorithm, resolveAlgorithm } from '../algorithms/select.ts'
import { builtInTuning, type TuningTable } from '../algorithms/tuning-table.ts'
import type { Heap } from '../arena/heap.ts'
import { instantiateKernels } from '../kernels/kernels.ts'
import { isCollective, isWithoutMessages, type Operation } from '../operation.ts'
import { chooseShared, type SharedContext } from '../shared/choose.ts'
import { createEpochs, Epochs } from '../shared/epochs.ts'
import { FlatRun } from '../shared/flat-run.ts'
import { WindowRun } from '../shared/window-run.ts'
import type { Transport, TransportCollectives } from '../transports/transport.ts'
import { createFailures } from './failures.ts'
import { createGroup, remember, type EngineGroup } from './group.ts'
import { createMatching } from './matching-queue.ts'
import { spaces } from './messages/frame.ts'
import { Link, type LinkEvents } from './messages/link.ts'
import { EngineMemory } from './messages/memory.ts'
import { TappedTask, type MessageListener } from './message-tap.ts'
import type { EngineObserver, ObservedEngine } from './observer.ts'
import { abortError, thrownError } from './task-errors.ts'
import { Task } from './task.ts'

export interface EngineOptions {
  readonly heap: Heap
  /** Rank of this process in the world. */
  readonly rank: number
  readonly worldSize: number
  /** The connections to the other ranks. Undefined for a world of one, and for a fake world. */
  readonly transport: Transport | undefined
  /** Runs operations in place of the transport and of shared memory. */
  readonly collectives?: TransportCollectives | undefined
  readonly observe: (engine: ObservedEngine) => EngineObserver
  /** The table for choosing algorithms; the same on all ranks. Default: the built-in thresholds. */
  readonly tuning?: TuningTable | undefined
  /** A word per world rank: 0 while the rank is present. The engine writes it; any thread may read it. */
  readonly gone?: Int32Array
  /** The memory from `createEpochs`. Required if another thread also enters epochs. */
  readonly epochs?: Int32Array | undefined
  /** Called for each message that an operation sends or receives. It must not throw. */
  readonly onMessage?: MessageListener | undefined
}

export type Engine = ReturnType<typeof createEngine>

/**
 * Creates the scheduler of one rank. It runs operations as generators, resumes them when their
 * messages have moved, and never blocks. Its runner calls `progress` and sleeps when nothing moves.
 */
export function createEngine(options: EngineOptions) {
  const { heap, rank, worldSize, transport, tuning = builtInTuning, onMessage } = options
  const { slots, hosts } = transport ?? {}
  const gone = options.gone ?? new Int32Array(worldSize)
  /** Memory for the epochs of groups; undefined if ranks share no slots. */
  const epochs = slots && (options.epochs ?? createEpochs(slots.exposingGroups))
  const kernels = instantiateKernels(heap.memory)
  const memory = new EngineMemory(heap, rank, kernels.copy, transport?.reservedBytes)
  const groups = new Map<number, EngineGroup>()
  /** Ids of groups that this rank has destroyed. An id is never used again. */
  const destroyed = new Set<number>()
  const running = new Set<Task>()
  const ready: Task[] = []

  const events: LinkEvents = {
    onUnexpected(stream, theirs) {
      failures.onUnexpected(stream, theirs)
      matching.onArrival(stream)
    },
    onFault(link, header, payload) {
      failures.onFault(link, header, payload)
      matching.onClosed(link)
    },
    onNotice(link, header, payload) {
      observer.onNotice(link, header, payload)
    },
    isAnyAwaited: () => matching.isWaiting(),
    hasLeft: (group) => destroyed.has(group),
    onClosed(link) {
      Atomics.store(gone, link.peer, 1)
      // First complete the operations whose messages have already arrived.
      runReady()
      failures.onClosed(link)
      matching.onClosed(link)
    },
  }
  /** The link to each world rank; undefined for this rank. */
  const links = Array.from({ length: worldSize }, (_, peer) =>
    peer === rank || transport === undefined
      ? undefined
      : new Link(peer, transport, memory, events),
  )
  const peers = links.filter((link) => link !== undefined)
  const matching = createMatching(links)
  const observer = options.observe({ groups, running, links })

  const settle = (task: Task, state: 'done' | 'failed'): void => {
    const { group, operation, fingerprint } = task
    task.state = state
    task.completed = monotonicNow()
    if (task.started === 0) task.started = task.completed
    if (state === 'failed') task.steps?.abandon?.()
    task.former = task.steps?.restart === undefined ? undefined : task.steps
    task.steps = undefined
    running.delete(task)
    observer.onSettled(task)
    task.release()
    if (isCollective(operation)) {
      group.active.delete(operation.sequence)
      remember(group, operation.sequence, fingerprint)
      if (state === 'done') task.closeStreams()
    }
    task.onSettled(task)
  }
  const failures = createFailures({ rank, links, groups, destroyed, running, settle, observer })

  const openSharedCollectives = (): TransportCollectives | undefined => {
    if (slots === undefined || epochs === undefined) return undefined
    return sharedCollectives({
      slots,
      epochs,
      get: (...copied) => {
        transport!.get!(...copied)
      },
      rank,
      kernels,
      waiting: [],
      onMismatch: ({ group, state }, peer, { sequence }, theirs) => {
        // Ignore an inquiry about another collective.
        if (theirs.sequence !== sequence || state !== 'running') return
        const stream = links[peer]!.stream(spaces.collective, group.id, sequence)
        failures.onMismatch(stream, theirs.fingerprint)
      },
    })
  }
  const collectives = options.collectives ?? transport?.collectives ?? openSharedCollectives()

  const begin = (task: Task): void => {
    const { group, operation } = task
    running.add(task)
    observer.onStart(task)
    if (failures.refuse(task)) return
    if (operation.aborted) {
      engine.abort(task)
      return
    }
    if (isCollective(operation)) {
      group.active.set(operation.sequence, task)
      if (!failures.checkEarlyMessages(task)) return
    }
    const { former } = task
    if (former !== undefined) former.restart!()
    task.steps = former ?? bodyOf(task)
    run(task)
  }

  const bodyOf = (task: Task): Resumable => {
    const { group, operation } = task
    if (collectives !== undefined && isWithoutMessages(operation)) return collectives.run(task)
    return findAlgorithm(operation, group.ranks.length)(task, operation)
  }

  const runReady = (): boolean => {
    const ran = ready.length > 0
    for (let task = ready.pop(); task !== undefined; task = ready.pop()) {
      if (task.state === 'running') run(task)
    }
    return ran
  }

  const run = (task: Task): void => {
    const { steps } = task
    if (steps === undefined) return
    try {
      for (;;) {
        const { done, value } = steps.next()
        if (task.state !== 'running') return
        if (done === true) {
          settle(task, 'done')
          return
        }
        if (!value.done) {
          if (value.missing !== undefined) failures.requirePresent(task, value.missing())
          task.waitingFor = value
          return
        }
      }
    } catch (cause) {
      failures.fail(task, thrownError(cause))
    }
  }

  const engine = {
    rank,
    heap,
    memory,
    kernels,
    tuning,
    gone,
    epochs,
    links,
    matching,
    failures,
    onMessage,
    hasRunning(): boolean {
      return running.size > 0
    },
    hasOutgoing(): boolean {
      for (const link of peers) if (link.hasOutgoing && link.closed !== 'lost') return true
      return false
    },
    /** Whether any peer is still connected. */
    hasPeers(): boolean {
      return peers.some((link) => link.closed === undefined)
    },
    addGroup: (id: number, name: string, ranks: readonly number[]): void => {
      const own = epochs && Epochs.of(epochs, id)
      groups.set(id, createGroup(id, name, ranks.indexOf(rank), ranks, hosts, own, slots))
      failures.onGroupAdded(id)
    },
    removeGroup: (id: number): void => {
      const group = groups.get(id)
      if (group === undefined) return
      groups.delete(id)
      destroyed.add(id)
      failures.onDestroyed(group)
      for (const link of peers) link.closeStreams(id)
      collectives?.removeGroup?.(id)
    },
    /** Fails the operations of a group on all of its ranks, and refuses later operations. */
    failGroup: failures.failGroup,
    /** Starts an operation. Calls `onSettled` once, perhaps before returning. */
    start(requested: Operation, onSettled: (task: Task) => void): Task {
      const group = groups.get(requested.group)
      if (group === undefined) {
        throw tsrError('ERR_TSR_INTERNAL', { what: `the engine has no group ${requested.group}` })
      }
      const { layout, ranks } = group
      const operation =
        collectives?.take(requested, group) ??
        resolveAlgorithm(requested, ranks.length, layout, tuning)
      const AnyTask = onMessage === undefined ? Task : TappedTask
      const task = new AnyTask(engine, operation, group, onSettled)
      begin(task)
      return task
    },
    /** Runs a completed operation again. `operation` holds its new position in the group. */
    restart(task: Task, operation: Operation): void {
      task.restart(operation)
      begin(task)
    },
    /**
     * Moves frames and resumes operations. Returns whether anything moved.
     *
     * @param everywhere - whether to poll all links, or only those that expect data
     */
    progress(everywhere = true): boolean {
      let moved = collectives?.progress() === true
      for (const link of peers) {
        if ((everywhere || link.isBusy) && link.move()) moved = true
      }
      return runReady() || moved
    },
    /**
     * Fails operations past their deadline. Returns the earliest deadline of the remaining
     * operations. A collective older than `patience` milliseconds asks the awaited ranks what they
     * run.
     */
    checkDeadlines(patience = 200): number {
      const now = monotonicNow()
      observer.look(now)
      return failures.checkDeadlines(now, patience)
    },
    abort(task: Task): void {
      failures.fail(task, abortError(task))
    },
    /** Sends a close frame to all peers, because this rank leaves normally. */
    sayGoodbye(): void {
      for (const link of peers) link.sayGoodbye()
    },
    /** Describes the running operations and the ranks that they wait for. */
    describeWaiting(): string {
      const tasks = Array.from(
        running,
        (task) => `${task.describe()} waits for rank ${task.peers().join(', ')}`,
      )
      return `rank ${rank}: ${tasks.join(', ')}`
    },
    /** Fails all running operations. */
    failAll(error: TsrError): void {
      for (const task of [...running]) failures.fail(task, error)
    },
    onReady(task: Task): void {
      ready.push(task)
    },
  }
  return engine
}

/** Runs collectives through shared memory, without messages. */
function sharedCollectives(context: SharedContext): TransportCollectives {
  const { slots, waiting } = context
  /** The epochs of each group, by id. Ids are never reused, so no two groups share slots. */
  const epochs = Array.from(
    { length: slots.exposingGroups },
    (_, group) => new Epochs(context.epochs, group),
  )
  return {
    take: (operation, group) => {
      const algorithm = chooseShared(operation, group, context)
      return algorithm && { ...operation, algorithm }
    },
    run: (running) => {
      const Run = running.operation.algorithm === 'flat' ? FlatRun : WindowRun
      const run = new Run(context, epochs[running.group.id]!, running)
      run.restart()
      return run
    },
    progress: () => {
      let moved = false
      for (let i = waiting.length - 1; i >= 0; i--) {
        const run = waiting[i]!
        const isRunning = run.running.state === 'running'
        if (isRunning && !run.done) continue
        waiting.splice(i, 1)
        if (!isRunning) continue
        moved = true
        run.running.resume(run)
      }
      slots.isAwaited = waiting.length > 0
      return moved
    },
  }
}
