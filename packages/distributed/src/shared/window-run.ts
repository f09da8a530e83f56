import { ALL, findWindowCollective, type Window, type WindowSteps } from '../algorithms/window.ts'
import type { Operation } from '../operation.ts'
import { EpochRun } from './epoch-run.ts'

const noKernels: Window['kernels'] = {
  combine: () => undefined,
  scale: () => undefined,
  copy: () => undefined,
}

/** Runs a large collective. Each rank exposes its buffer in place until all other ranks have read it. */
export class WindowRun extends EpochRun implements Window {
  readonly isLarge = true
  #steps: WindowSteps | undefined
  /** Number of steps that awaited ranks must have completed; undefined if entering is enough. */
  #count: number | undefined
  #done = 0
  /** Whether the run repeats the other thread's steps, without moving data. */
  #isReplaying = false

  get kernels(): Window['kernels'] {
    return this.#isReplaying ? noKernels : this.context.kernels
  }

  scratch(bytes: number): number {
    return this.running.scratch(bytes)
  }

  read(rank: number, at: number, offset: number, bytes: number): void {
    if (this.#isReplaying) return
    const { slots, get } = this.context
    const { id, ranks } = this.running.group
    const peer = ranks[rank]!
    get!(peer, at, slots.exposedAt(peer, id, this.epoch) + offset, bytes)
  }

  advance(): void {
    this.#done++
    if (this.#isReplaying) return
    this.context.slots.advance(this.running.group.id, (this.epochs.steps + this.#done) | 0)
  }

  override restart(operation?: Operation): void {
    super.restart(operation)
    const { name, begun } = this.operation
    this.#steps = findWindowCollective(name)!(this, this.operation)
    this.#count = undefined
    this.#done = 0
    this.#isReplaying = true
    for (let step = 1; step < begun; step++) this.step()
    this.#isReplaying = false
  }

  abandon(): void {
    this.context.slots.withdraw(this.running.group.id, this.epoch)
  }

  protected show(): void {
    const { id } = this.running.group
    this.context.slots.expose(id, this.epoch, this.header, this.operation.input)
  }

  protected step(): boolean {
    const { ranks } = this.running.group
    const { done, value } = this.#steps!.next()
    if (done === true) {
      this.epochs.steps = (this.epochs.steps + this.#done) | 0
      return true
    }
    this.awaited = value.rank === ALL ? ranks : [ranks[value.rank]!]
    this.#count = (this.epochs.steps + value.steps) | 0
    return false
  }

  protected override isReady(peer: number, spins: boolean): boolean {
    if (this.#count === undefined) return super.isReady(peer, spins)
    const { slots } = this.context
    const { id, ranks } = this.running.group
    if (!slots.hasCompleted(peer, id, this.#count, spins)) return false
    return this.awaited !== ranks || !slots.hasWithdrawn(peer, id, this.epoch)
  }
}
