import { ALL, findWindowCollective, type Window, type WindowSteps } from '../algorithms/window.ts'
import { dtypes } from '../dtype.ts'
import type { SlotHeader } from '../transports/shared-slots.ts'
import { EpochRun, type EpochOf } from './epoch.ts'

const noKernels: Window['kernels'] = {
  combine: () => undefined,
  scale: () => undefined,
  copy: () => undefined,
}

/** A large collective, on the ranks' own buffers. They stay exposed until all have read them. */
export class WindowRun extends EpochRun implements Window {
  #steps: WindowSteps | undefined
  /** What it waits for: world rank, or ALL, and the count of its steps. At first, the epoch. */
  #awaited = ALL
  #count: number | undefined
  #done = 0
  #continued = 0
  /** It comes to where another thread has left it, without moving data. */
  #isReplaying = false

  constructor(of: EpochOf) {
    super(of)
    this.#replay()
  }

  get kernels(): Window['kernels'] {
    return this.#isReplaying ? noKernels : this.context.kernels
  }

  /** See `Operation.begun`. */
  get begun(): number {
    return this.isPublished ? 1 + this.#continued : 0
  }

  scratch(bytes: number): number {
    return this.running.scratch(bytes)
  }

  read(rank: number, at: number, offset: number, bytes: number): void {
    if (this.#isReplaying) return
    const { slots, get } = this.context
    const { id, ranks } = this.running.group
    const peer = ranks[rank]!
    get(peer, at, slots.exposedAt(peer, id, this.epoch) + offset, bytes)
  }

  advance(): void {
    this.#done++
    if (this.#isReplaying) return
    this.context.slots.advance(this.running.group.id, (this.epochs.steps + this.#done) | 0)
  }

  override restart(): void {
    super.restart()
    this.#steps = this.#count = undefined
    this.#awaited = ALL
    this.#done = this.#continued = 0
    this.#replay()
  }

  abandon(): void {
    this.context.slots.withdraw(this.running.group.id, this.epoch)
  }

  protected get published(): number {
    const { name, count, dtype } = this.running.operation
    return count * dtypes[dtype].bytes * (name === 'reduceScatter' ? this.size : 1)
  }

  protected publish(header: SlotHeader): void {
    const { operation, group } = this.running
    this.context.slots.expose(group.id, this.epoch, header, operation.input)
  }

  protected isReady(peer: number): boolean {
    if (this.#awaited !== ALL && this.#awaited !== peer) return true
    if (this.#count === undefined) return this.hasArrived(peer)
    const { slots } = this.context
    const { id } = this.running.group
    if (((slots.stepsOf(peer, id) - this.#count) | 0) < 0) return false
    return this.#awaited !== ALL || !slots.hasWithdrawn(peer, id, this.epoch)
  }

  protected isSoonReady(): boolean {
    const count = this.#count
    if (count === undefined) return this.haveArrived()
    const { slots, rank } = this.context
    const { id, ranks } = this.running.group
    if (this.#awaited !== ALL) return slots.awaitSteps(this.#awaited, id, count)
    return ranks.every((peer) => peer === rank || slots.awaitSteps(peer, id, count))
  }

  protected proceed(): boolean {
    const { operation, group } = this.running
    this.#steps ??= findWindowCollective(operation.name)!(this, operation)
    this.#continued++
    const { done, value } = this.#steps.next()
    if (done === true) {
      this.epochs.steps = (this.epochs.steps + this.#done) | 0
      return true
    }
    this.#awaited = value.rank === ALL ? ALL : group.ranks[value.rank]!
    this.#count = (this.epochs.steps + value.steps) | 0
    return false
  }

  #replay(): void {
    this.#isReplaying = true
    for (let step = 1; step < this.running.operation.begun; step++) this.proceed()
    this.#isReplaying = false
  }
}
