import { ALL, NOBODY, planOf, type FlatEpoch, type FlatPlan } from '../algorithms/flat.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { EpochRun, type EpochContext, type RunInEpoch } from './epoch-run.ts'
import type { Epochs } from './epochs.ts'

/** Runs a small collective. Each rank copies its input to a slot, which is reused two epochs later. */
export class FlatRun extends EpochRun implements FlatEpoch {
  readonly isLarge = false
  readonly kernels: Kernels
  readonly #plan: FlatPlan

  constructor(context: EpochContext, epochs: Epochs, running: RunInEpoch) {
    super(context, epochs, running)
    this.#plan = planOf(running.operation, this.rank, this.size)
    this.kernels = context.kernels
  }

  slotOf(member: number): number {
    const { id, ranks } = this.running.group
    return this.context.slots.slotOf(ranks[member]!, id, this.epoch)
  }

  protected show(): void {
    const { id, ranks } = this.running.group
    const { awaited, published } = this.#plan
    if (awaited !== ALL) this.awaited = awaited === NOBODY ? [] : [ranks[awaited]!]
    this.context.slots.publish(id, this.epoch, this.header, this.operation.input, published)
  }

  protected step(): boolean {
    const { take, bytes, awaited } = this.#plan
    take?.(this, this.operation, bytes)
    if (awaited !== ALL) this.epochs.isUnchecked = true
    return true
  }
}
