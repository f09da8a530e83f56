import { monotonicNow } from '@tsrun/core'
import type { Resumable, Waited } from '../algorithms/channel.ts'
import { dtypes } from '../dtype.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { reducing, type Fingerprint, type Operation } from '../operation.ts'
import type { RunningOperation, SharedSlots, SlotHeader } from '../transports/transport.ts'
import type { Epochs } from './epochs.ts'

export type RunInEpoch = Pick<
  RunningOperation,
  'operation' | 'group' | 'fingerprint' | 'state' | 'started' | 'scratch' | 'resume'
>

export interface EpochContext {
  readonly slots: SharedSlots
  readonly kernels: Kernels
  /** World rank of this process. */
  readonly rank: number
  /**
   * Copies from a peer's heap, like `Transport.get`. Undefined if the thread runs small collectives
   * only.
   */
  readonly get: ((peer: number, at: number, from: number, bytes: number) => void) | undefined
  /** The runs that wait until peers have published a buffer or a step. */
  readonly waiting: EpochRun[]
  /**
   * Called if the operation that a peer has published in an epoch differs from this rank's. `peer`
   * is a world rank.
   */
  readonly onMismatch: (
    running: RunInEpoch,
    peer: number,
    mine: SlotHeader,
    theirs: SlotHeader,
  ) => void
}

const FINISHED = { done: true, value: undefined } as const

/**
 * Runs one operation on shared memory. `restart` prepares each run, including the first. A rank
 * enters epoch n, by publishing its buffer, once every rank has entered n-1. A rank that has
 * entered n has read all buffers of n-2.
 */
export abstract class EpochRun implements Resumable, Waited {
  /** Whether the operation takes many steps and scratch memory. */
  abstract readonly isLarge: boolean
  readonly running: RunInEpoch
  /** Rank of this process in the group. */
  readonly rank: number
  readonly size: number
  /** How far the calling thread has run the operation, as in `Operation.begun`. */
  begun = 0
  protected readonly context: EpochContext
  protected readonly epochs: Epochs
  protected epoch = 0
  protected operation: Operation
  /** World ranks that the run waits for. This rank may be in the list and is skipped. */
  protected awaited: readonly number[]
  protected readonly header: { sequence: number; readonly fingerprint: Fingerprint }
  /** Number of ready ranks at the start of the list `awaited`. */
  #ready = 0

  constructor(context: EpochContext, epochs: Epochs, running: RunInEpoch) {
    const { operation, group, fingerprint } = running
    this.running = running
    this.operation = operation
    this.rank = group.rank
    this.size = group.ranks.length
    this.context = context
    this.epochs = epochs
    this.awaited = group.ranks
    this.header = { sequence: 0, fingerprint }
  }

  /**
   * Takes the next epoch. If the calling thread has already begun the operation, the operation
   * keeps its epoch.
   */
  restart(operation = this.operation): void {
    const { sequence, begun } = operation
    this.operation = operation
    this.header.sequence = sequence
    this.begun = begun
    if (begun === 0) this.epochs.given = (this.epochs.given + 1) | 0
    this.epoch = this.epochs.given
    this.awaited = this.running.group.ranks
    this.#ready = 0
  }

  /** Whether all awaited ranks are ready, so that the run can continue. */
  get done(): boolean {
    const mayPublish = this.begun > 0 || this.epochs.over === ((this.epoch - 1) | 0)
    return mayPublish && this.#areReady(false)
  }

  /** Returns the awaited world ranks that are not ready. */
  missing(): number[] {
    return this.awaited.filter((peer) => !this.#isThere(peer, false))
  }

  next(): IteratorResult<Waited, void> {
    if (this.begun === 0 && this.done) this.publish()
    if (this.begun > 0 && this.proceed()) return FINISHED
    const { waiting, slots } = this.context
    if (!waiting.includes(this)) waiting.push(this)
    slots.isAwaited = true
    return { done: false, value: this }
  }

  /** Compares the calls of the previous epoch, unless that was done. Returns whether they match. */
  compare(): boolean {
    if (!this.epochs.isUnchecked) return true
    const { ranks, id } = this.running.group
    const { slots, rank } = this.context
    const last = this.epoch - 1
    const mine = slots.headerOf(rank, id, last)
    if (!ranks.every((peer) => this.#matches(peer, last, mine))) return false
    this.epochs.isUnchecked = false
    return true
  }

  /** Enters the epoch by publishing this rank's buffer. */
  publish(): void {
    const { name, reduction, dtype, input, factor } = this.operation
    if (!this.compare()) this.epochs.isUnchecked = false
    if (this.running.started === 0) this.running.started = monotonicNow()
    if (reduction === 'premulSum' && reducing.has(name)) {
      this.context.kernels.scale(dtype, input, this.published / dtypes[dtype].bytes, factor)
    }
    this.show()
    this.begun = 1
    this.#ready = 0
  }

  /** Takes steps while all awaited ranks are ready. Returns whether the run has ended. */
  proceed(): boolean {
    while (this.#areReady(true)) {
      this.begun++
      this.#ready = 0
      if (!this.step()) continue
      this.epochs.over = this.epoch
      return true
    }
    return false
  }

  /** Number of bytes at the operation's input that other ranks may read. */
  protected abstract readonly published: number

  /** Makes the input readable for the other ranks. */
  protected abstract show(): void

  /** Takes one step. Returns whether the run has ended. */
  protected abstract step(): boolean

  /** Whether a peer has entered this epoch with the same operation as this rank. */
  protected isReady(peer: number, spins: boolean): boolean {
    const { slots } = this.context
    const hasEntered = slots.hasEntered(peer, this.running.group.id, this.epoch, spins)
    return hasEntered && this.#matches(peer, this.epoch, this.header)
  }

  #areReady(spins: boolean): boolean {
    const { awaited } = this
    while (this.#ready < awaited.length) {
      if (!this.#isThere(awaited[this.#ready]!, spins)) return false
      this.#ready++
    }
    return true
  }

  /**
   * Whether a peer is ready. Before this rank has published its buffer, the peer need only have
   * entered the previous epoch.
   */
  #isThere(peer: number, spins: boolean): boolean {
    const { rank, slots } = this.context
    if (peer === rank) return true
    if (this.begun > 0) return this.isReady(peer, spins)
    return slots.hasEntered(peer, this.running.group.id, this.epoch - 1, false)
  }

  #matches(peer: number, epoch: number, mine: SlotHeader): boolean {
    const { slots, onMismatch } = this.context
    const { id } = this.running.group
    if (slots.matches(peer, id, epoch, mine)) return true
    onMismatch(this.running, peer, mine, slots.headerOf(peer, id, epoch))
    return false
  }
}
