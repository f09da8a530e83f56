import { monotonicNow } from '@tsrun/core'
import type { Resumable, Waited } from '../algorithms/channel.ts'
import {
  ALL,
  flatBytes,
  NOBODY,
  planOf,
  type FlatPlan,
  type FlatEpoch,
} from '../algorithms/flat.ts'
import { dtypes } from '../dtype.ts'
import type { Kernels } from '../kernels/kernels.ts'
import {
  reducing,
  rooted,
  sameFingerprint,
  type Fingerprint,
  type Operation,
} from '../operation.ts'
import type { SharedSlots, SlotHeader } from '../transports/shared-slots.ts'
import type {
  GroupFacts,
  RunningOperation,
  TransportCollectives,
} from '../transports/transport-collectives.ts'

/** What flat collectives need of the engine. */
export interface FlatContext {
  readonly slots: SharedSlots
  /** World rank. */
  readonly rank: number
  readonly kernels: Kernels
  /** A peer (world rank) runs something else at this position of a group. */
  readonly onMismatch: (peer: number, group: number, sequence: number, theirs: Fingerprint) => void
}

/** The epochs of a group. They are given to its operations in the order of the calls. */
interface Epochs {
  /** The last epoch that was given to an operation. Epochs are modulo 2^32. */
  given: number
  /** The last epoch that is over. */
  over: number
  /** The operation of the epoch before, when it may have ended without comparing all ranks' calls. */
  unchecked: RunningOperation | undefined
}

/** Runs small collectives of ranks that share memory on shared slots, without messages. */
export class FlatCollectives implements TransportCollectives {
  readonly #context: FlatContext
  readonly #waiting: FlatRun[] = []
  /** By group id. Ids are given once, so slots never pass from one group to another. */
  readonly #epochs: readonly Epochs[]

  constructor(context: FlatContext) {
    this.#context = context
    this.#epochs = Array.from({ length: context.slots.groups }, () => ({
      given: 0,
      over: 0,
      unchecked: undefined,
    }))
  }

  take(operation: Operation, group: GroupFacts): Operation | undefined {
    const { slots, rank } = this.#context
    const { algorithm, isReserved } = operation
    const { id, layout, ranks } = group
    if (algorithm !== 'auto' || isReserved || id >= slots.groups || layout !== 'together') {
      return undefined
    }
    const bytes = flatBytes(operation, ranks.length)
    if (bytes === undefined || bytes > slots.slotBytes) return undefined
    if (!ranks.every((peer) => peer === rank || slots.reaches(peer))) return undefined
    return { ...operation, algorithm: 'flat' }
  }

  run(running: RunningOperation): Resumable {
    return new FlatRun(this.#context, running, this.#epochs[running.group.id]!, this.#waiting)
  }

  progress(): boolean {
    let moved = false
    for (let i = this.#waiting.length - 1; i >= 0; i--) {
      const run = this.#waiting[i]!
      const isRunning = run.running.state === 'running'
      if (isRunning && !run.done) continue
      this.#waiting.splice(i, 1)
      if (!isRunning) continue
      moved = true
      run.running.resume(run)
    }
    return moved
  }
}

const FINISHED = { done: true, value: undefined } as const

/**
 * One operation on shared slots. A slot is written again two epochs later: a rank begins an epoch
 * when all others have begun the one before, and a rank that has begun an epoch has read everything
 * of the one before the last.
 */
class FlatRun implements Resumable, Waited, FlatEpoch {
  readonly running: RunningOperation
  readonly rank: number
  readonly size: number
  readonly kernels: Kernels
  readonly slotOf: (rank: number) => number
  readonly #context: FlatContext
  readonly #group: number
  readonly #epochs: Epochs
  readonly #waiting: FlatRun[]
  readonly #epoch: number
  readonly #header: SlotHeader
  readonly #plan: FlatPlan
  #isPublished = false

  constructor(context: FlatContext, running: RunningOperation, epochs: Epochs, waiting: FlatRun[]) {
    const { group, operation, fingerprint } = running
    const { slots, kernels } = context
    this.running = running
    this.rank = group.rank
    this.size = group.ranks.length
    this.kernels = kernels
    this.#context = context
    this.#group = group.id
    this.#epochs = epochs
    this.#waiting = waiting
    this.#epoch = epochs.given = (epochs.given + 1) | 0
    this.#header = { sequence: operation.sequence, fingerprint }
    this.#plan = planOf(operation, this.rank, this.size)
    this.slotOf = (member) => slots.slotOf(group.ranks[member]!, group.id, this.#epoch)
  }

  /** Whether it can continue; finds ranks that run something else. */
  get done(): boolean {
    if (!this.#isPublished && this.#epochs.over !== this.#before) return false
    for (const peer of this.running.group.ranks) if (!this.#isPresent(peer)) return false
    return true
  }

  /** World ranks. */
  missing(): number[] {
    return this.running.group.ranks.filter((peer) => !this.#isPresent(peer))
  }

  next(): IteratorResult<Waited, void> {
    if (!this.#isPublished) {
      if (!this.done) return this.#wait()
      this.#publish()
    }
    if (!this.done) return this.#wait()
    const { take, bytes } = this.#plan
    const { operation } = this.running
    take?.(this, operation, bytes)
    this.#epochs.over = this.#epoch
    this.#epochs.unchecked = rooted.has(operation.name) ? this.running : undefined
    return FINISHED
  }

  get #before(): number {
    return (this.#epoch - 1) | 0
  }

  #wait(): IteratorResult<Waited, void> {
    this.#waiting.push(this)
    return { done: false, value: this }
  }

  /** Before publishing: whether a rank has begun the epoch before; afterwards: what it waits for. */
  #isPresent(peer: number): boolean {
    const { rank, slots } = this.#context
    if (peer === rank) return true
    if (!this.#isPublished) return ((slots.epochOf(peer, this.#group) - this.#before) | 0) >= 0
    const { awaited } = this.#plan
    if (awaited === NOBODY) return true
    if (awaited !== ALL && this.running.group.ranks[awaited] !== peer) return true
    return this.#hasArrived(peer)
  }

  /** False also where the peer runs another collective in this epoch: an inquiry finds that. */
  #hasArrived(peer: number): boolean {
    const { slots, onMismatch } = this.#context
    const { operation, state } = this.running
    if (((slots.epochOf(peer, this.#group) - this.#epoch) | 0) < 0) return false
    if (slots.matches(peer, this.#group, this.#epoch, this.#header)) return true
    const { sequence, fingerprint } = slots.headerOf(peer, this.#group, this.#epoch)
    const isOther = sequence === operation.sequence
    if (isOther && state === 'running') onMismatch(peer, this.#group, sequence, fingerprint)
    return false
  }

  #publish(): void {
    const { slots, kernels } = this.#context
    const { name, reduction, dtype, input, factor } = this.running.operation
    const { published } = this.#plan
    if (this.#epochs.unchecked !== undefined) this.#compare(this.#epochs.unchecked)
    if (this.running.started === 0) this.running.started = monotonicNow()
    if (reduction === 'premulSum' && reducing.has(name)) {
      kernels.scale(dtype, input, published / dtypes[dtype].bytes, factor)
    }
    slots.publish(this.#group, this.#epoch, this.#header, input, published)
    this.#isPublished = true
  }

  /** Finds ranks that run something else: all have begun the epoch before, and none has ended this. */
  #compare(before: RunningOperation): void {
    const { slots, rank, onMismatch } = this.#context
    for (const peer of before.group.ranks) {
      if (peer === rank) continue
      const { sequence, fingerprint } = slots.headerOf(peer, this.#group, this.#before)
      const isSame = sequence === before.operation.sequence
      if (isSame && !sameFingerprint(fingerprint, before.fingerprint)) {
        onMismatch(peer, this.#group, sequence, fingerprint)
        return
      }
    }
  }
}
