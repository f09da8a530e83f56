import { ALL, NOBODY, planOf, type FlatEpoch, type FlatPlan } from '../algorithms/flat.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { rooted } from '../operation.ts'
import type { SlotHeader } from '../transports/shared-slots.ts'
import { EpochRun, type EpochOf } from './epoch.ts'

/** A small collective, on copies in slots. A slot is written again two epochs later. */
export class FlatRun extends EpochRun implements FlatEpoch {
  readonly kernels: Kernels
  readonly slotOf: (rank: number) => number
  readonly #plan: FlatPlan

  constructor(of: EpochOf) {
    super(of)
    const { operation, group } = of.running
    const { slots } = of.context
    this.#plan = planOf(operation, this.rank, this.size)
    this.kernels = of.context.kernels
    this.slotOf = (member) => slots.slotOf(group.ranks[member]!, group.id, this.epoch)
  }

  protected get published(): number {
    return this.#plan.published
  }

  protected publish(header: SlotHeader): void {
    const { operation, group } = this.running
    this.context.slots.publish(group.id, this.epoch, header, operation.input, this.published)
  }

  protected isReady(peer: number): boolean {
    const { awaited } = this.#plan
    if (awaited === NOBODY) return true
    if (awaited !== ALL && this.running.group.ranks[awaited] !== peer) return true
    return this.hasArrived(peer)
  }

  protected isSoonReady(): boolean {
    return this.#plan.awaited !== ALL || this.haveArrived()
  }

  protected proceed(): boolean {
    const { take, bytes } = this.#plan
    const { operation } = this.running
    take?.(this, operation, bytes)
    // a copy: a prepared operation may be at another position by then
    if (rooted.has(operation.name)) this.epochs.unchecked = { ...this.header }
    return true
  }
}
