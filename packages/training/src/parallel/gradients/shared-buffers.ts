import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../../model/parameter.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'

/**
 * Keeps the buffers of a replicated model equal on all ranks; see `Module.buffers`. After each step
 * all ranks get the buffers of the first rank, as in torch's DistributedDataParallel. Only changed
 * buffers are sent, so the weights of frozen layers are never sent.
 */
export class SharedBuffers {
  readonly #buffers: readonly Parameter[]
  /** The values of the buffers after the last `share`, to find changed ones. */
  #known: readonly Tensor[]

  constructor(buffers: readonly Parameter[]) {
    this.#buffers = buffers
    this.#known = buffers.map(({ value }) => value)
  }

  /**
   * Copies changed buffers from the first rank to all ranks.
   *
   * @param axes - the groups over which gradients are averaged, in this order
   */
  async share(axes: readonly ProcessGroup[]): Promise<void> {
    if (this.#buffers.length === 0) return
    const changed = Uint8Array.from(this.#buffers, ({ value }, i) =>
      Number(value !== this.#known[i]),
    )
    for (const axis of axes) {
      if (axis.size === 1) continue
      await axis.allReduce(changed, { op: 'max', label: 'changed buffers' })
      await this.#broadcast(
        this.#buffers.filter((_, i) => changed[i] !== 0),
        axis,
      )
    }
    this.#known = this.#buffers.map(({ value }) => value)
  }

  /** Broadcasts all buffers in one message, because buffers are many and small. */
  async #broadcast(buffers: readonly Parameter[], group: ProcessGroup): Promise<void> {
    const size = buffers.reduce((sum, { value }) => sum + value.size, 0)
    if (size === 0) return
    const all = group.allocUnsafe('float32', size)
    try {
      let at = 0
      const places = buffers.map((buffer) => {
        const values = all.subarray(at, (at += buffer.value.size))
        return { buffer, values }
      })
      if (group.rank === 0) {
        for (const { buffer, values } of places) {
          const facts = { name: buffer.name, bytes: values.byteLength }
          await timeSpan(group.spans, 'pack', facts, () => writeTo(buffer.value, values))
        }
      }
      await group.broadcast(all, 0, { label: 'buffers' })
      for (const { buffer, values } of group.rank === 0 ? [] : places) {
        timeSpan(group.spans, 'unpack', { name: buffer.name, bytes: values.byteLength }, () => {
          replaceValue(buffer, tensorFrom(values, buffer.shape))
        })
      }
    } finally {
      group.free(all)
    }
  }
}
