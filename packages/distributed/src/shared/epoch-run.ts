import { monotonicNow } from '@tsrun/core'
import type { Resumable, Waited } from '../algorithms/channel.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Fingerprint, Operation } from '../operation.ts'
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
  /** Copies from a peer's heap, as `Transport.get`. Undefined if only small collectives run here. */
  readonly get: ((peer: number, at: number, from: number, bytes: number) => void) | undefined
  /** The runs that wait until peers have published a buffer or a step. */
  readonly waiting: EpochRun[]
  /** Called if a peer (world rank) has published another operation in an epoch. */
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

  /** Prepares a run. Takes a new epoch unless the calling thread has already begun the operation. */
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
    if (this.begun > 0) return this.#areReady()
    const { epochs } = this
    if (epochs.over !== ((this.epoch - 1) | 0)) return false
    // If the calls of the previous epoch were compared, every rank has entered the previous epoch.
    return !epochs.isUnchecked || this.#areReady()
  }

  /** Returns the awaited world ranks that are not ready. */
  missing(): number[] {
    return this.awaited.filter((peer) => !this.#isThere(peer))
  }

  next(): IteratorResult<Waited, void> {
    if (this.begun === 0 && this.done) {
      if (this.epochs.isUnchecked && !this.#compare()) this.epochs.isUnchecked = false
      this.#publish()
    }
    if (this.begun > 0 && this.proceed()) return FINISHED
    const { waiting, slots } = this.context
    if (!waiting.includes(this)) waiting.push(this)
    slots.isAwaited = true
    return { done: false, value: this }
  }

  /**
   * Enters the epoch if every rank has entered the previous epoch with the same call, and otherwise returns
   * false. Call it only after this rank has completed the previous epoch.
   */
  enter(): boolean {
    if (this.epochs.isUnchecked && !(this.#areReady() && this.#compare())) return false
    this.#publish()
    return true
  }

  /** Compares the calls of the previous epoch. Returns whether they match. */
  #compare(): boolean {
    const { ranks, id } = this.running.group
    const { slots, rank } = this.context
    const last = (this.epoch - 1) | 0
    const mine = slots.headerOf(rank, id, last)
    if (!ranks.every((peer) => this.#hasEntered(peer, last, mine, false))) return false
    this.epochs.isUnchecked = false
    return true
  }

  /** Enters the epoch by publishing this rank's buffer. */
  #publish(): void {
    if (this.running.started === 0) this.running.started = monotonicNow()
    this.show()
    this.begun = 1
    this.#ready = 0
  }

  /** Takes steps while all awaited ranks are ready. Returns whether the run has ended. */
  proceed(): boolean {
    const { rank } = this.context
    do {
      const { awaited } = this
      for (; this.#ready < awaited.length; this.#ready++) {
        const peer = awaited[this.#ready]!
        if (peer !== rank && !this.isReady(peer, true)) return false
      }
      this.begun++
      this.#ready = 0
    } while (!this.step())
    this.epochs.over = this.epoch
    return true
  }

  /** Makes the input readable for the other ranks. */
  protected abstract show(): void

  /** Takes one step. Returns whether the run has ended. */
  protected abstract step(): boolean

  /** Whether a peer has entered this epoch with the same operation as this rank. */
  protected isReady(peer: number, spins: boolean): boolean {
    return this.#hasEntered(peer, this.epoch, this.header, spins)
  }

  #areReady(): boolean {
    for (let i = this.#ready; i < this.awaited.length; i++) {
      if (!this.#isThere(this.awaited[i]!)) return false
    }
    return true
  }

  /**
   * Whether a peer is ready. Before this rank has published its buffer, the peer need only have
   * entered the previous epoch.
   */
  #isThere(peer: number): boolean {
    const { rank, slots } = this.context
    const { id } = this.running.group
    if (peer === rank) return true
    if (this.begun > 0) return this.isReady(peer, false)
    return slots.entryOf(peer, id, (this.epoch - 1) | 0, this.header, false) !== 0
  }

  /** Whether a peer has entered an epoch with the same call. Reports a mismatch if the call differs. */
  #hasEntered(peer: number, epoch: number, mine: SlotHeader, spins: boolean): boolean {
    const { slots, onMismatch } = this.context
    const { id } = this.running.group
    const entry = slots.entryOf(peer, id, epoch, mine, spins)
    if (entry === 2) onMismatch(this.running, peer, mine, slots.headerOf(peer, id, epoch))
    return entry === 1
  }
}
