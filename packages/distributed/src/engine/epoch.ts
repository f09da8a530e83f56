import { monotonicNow } from '@tsrun/core'
import type { Resumable, Waited } from '../algorithms/channel.ts'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import { dtypes } from '../dtype.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { reducing, sameFingerprint, type Fingerprint } from '../operation.ts'
import type { SharedSlots, SlotHeader } from '../transports/shared-slots.ts'
import type { RunningOperation } from '../transports/transport-collectives.ts'
import type { Epochs } from './epochs.ts'

/** What collectives on shared memory need of the engine. */
export interface SharedContext {
  readonly slots: SharedSlots
  /** Memory for the epochs of its groups; see `createEpochs`. */
  readonly epochs: Int32Array
  /** See `Transport`. */
  readonly get: (peer: number, at: number, from: number, bytes: number) => void
  /** World rank. */
  readonly rank: number
  readonly kernels: Kernels
  readonly tuning: TuningTable
  /** A peer (world rank) runs something else at this position of a group. */
  readonly onMismatch: (peer: number, group: number, sequence: number, theirs: Fingerprint) => void
}

/** What an epoch runs. */
export type RunInEpoch = Pick<
  RunningOperation,
  'operation' | 'group' | 'fingerprint' | 'state' | 'started' | 'scratch' | 'resume'
>

export interface EpochOf {
  readonly context: SharedContext
  readonly running: RunInEpoch
  readonly epochs: Epochs
  /** Those that wait, of all groups. */
  readonly waiting: EpochRun[]
}

const FINISHED = { done: true, value: undefined } as const

/**
 * One operation on shared memory. A rank begins an epoch when all others have begun the one before,
 * and a rank that has begun an epoch has read everything of the one before the last.
 */
export abstract class EpochRun implements Resumable, Waited {
  readonly running: RunInEpoch
  /** Rank in the group. */
  readonly rank: number
  readonly size: number
  protected readonly context: SharedContext
  protected readonly epochs: Epochs
  protected epoch: number
  readonly #waiting: EpochRun[]
  readonly #header: { sequence: number; readonly fingerprint: Fingerprint }
  #isPublished = false

  constructor({ context, running, epochs, waiting }: EpochOf) {
    this.running = running
    this.rank = running.group.rank
    this.size = running.group.ranks.length
    this.context = context
    this.epochs = epochs
    this.epoch = this.#begin()
    this.#waiting = waiting
    this.#header = { sequence: running.operation.sequence, fingerprint: running.fingerprint }
  }

  /** What this rank says about the operation. */
  protected get header(): SlotHeader {
    return this.#header
  }

  /** Whether the others may read what this rank has. */
  protected get isPublished(): boolean {
    return this.#isPublished
  }

  restart(): void {
    this.epoch = this.#begin()
    this.#header.sequence = this.running.operation.sequence
  }

  /** Whether it can continue; finds ranks that run something else. */
  get done(): boolean {
    if (!this.#isPublished && this.epochs.over !== this.#before) return false
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
    while (this.isSoonReady() && this.done) {
      if (!this.proceed()) continue
      this.epochs.over = this.epoch
      return FINISHED
    }
    return this.#wait()
  }

  /** Bytes at the operation's input that the others read. */
  protected abstract readonly published: number

  protected abstract publish(header: SlotHeader): void

  /** Whether it can continue, as far as it depends on a peer (world rank). */
  protected abstract isReady(peer: number): boolean

  /** Spins briefly until all ranks that it depends on are ready; returns whether they are. */
  protected abstract isSoonReady(): boolean

  /** Continues when everybody that it depends on is ready; returns whether it is over. */
  protected abstract proceed(): boolean

  /** Whether the peer has begun this epoch, with the same operation: an inquiry finds others. */
  protected hasArrived(peer: number): boolean {
    const { slots, onMismatch } = this.context
    const { operation, group, state } = this.running
    if (((slots.epochOf(peer, group.id) - this.epoch) | 0) < 0) return false
    if (slots.matches(peer, group.id, this.epoch, this.#header)) return true
    const { sequence, fingerprint } = slots.headerOf(peer, group.id, this.epoch)
    const isOther = sequence === operation.sequence
    if (isOther && state === 'running') onMismatch(peer, group.id, sequence, fingerprint)
    return false
  }

  /** Spins briefly until all ranks have entered this epoch; returns whether they have. */
  protected haveArrived(): boolean {
    const { slots, rank } = this.context
    const { id, ranks } = this.running.group
    for (const peer of ranks) {
      if (peer !== rank && !slots.awaitEpoch(peer, id, this.epoch)) return false
    }
    return true
  }

  get #before(): number {
    return (this.epoch - 1) | 0
  }

  /** Takes the next epoch, or the one that the caller's thread has begun for it. */
  #begin(): number {
    this.#isPublished = this.running.operation.begun > 0
    if (!this.#isPublished) this.epochs.given = (this.epochs.given + 1) | 0
    return this.epochs.given
  }

  #wait(): IteratorResult<Waited, void> {
    if (!this.#waiting.includes(this)) this.#waiting.push(this)
    this.context.slots.isAwaited = true
    return { done: false, value: this }
  }

  /** Before publishing: whether a rank has begun the epoch before. */
  #isPresent(peer: number): boolean {
    const { rank, slots } = this.context
    if (peer === rank) return true
    if (this.#isPublished) return this.isReady(peer)
    return ((slots.epochOf(peer, this.running.group.id) - this.#before) | 0) >= 0
  }

  #publish(): void {
    const { name, reduction, dtype, input, factor } = this.running.operation
    if (this.epochs.unchecked !== undefined) this.#compare(this.epochs.unchecked)
    this.epochs.unchecked = undefined
    if (this.running.started === 0) this.running.started = monotonicNow()
    if (reduction === 'premulSum' && reducing.has(name)) {
      this.context.kernels.scale(dtype, input, this.published / dtypes[dtype].bytes, factor)
    }
    this.publish(this.#header)
    this.#isPublished = true
  }

  /** Finds ranks that run something else: all have begun the epoch before, and none has ended this. */
  #compare(before: SlotHeader): void {
    const { slots, rank, onMismatch } = this.context
    const { group } = this.running
    for (const peer of group.ranks) {
      if (peer === rank) continue
      const { sequence, fingerprint } = slots.headerOf(peer, group.id, this.#before)
      const isSame = sequence === before.sequence
      if (isSame && !sameFingerprint(fingerprint, before.fingerprint)) {
        onMismatch(peer, group.id, sequence, fingerprint)
        return
      }
    }
  }
}
