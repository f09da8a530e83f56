import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../../model/parameter.ts'

/**
 * Keeps the buffers of a replicated model equal on all ranks; see `Module.buffers`. After each step
 * all ranks get the buffers of the first rank, as in torch's DistributedDataParallel. Only changed
 * buffers are sent, so the weights of frozen layers are never sent.
 *
 * @returns a function that copies changed buffers from the first rank to all ranks of the axes over which
 *   gradients are averaged, axis by axis
 */
export function bufferSharing(
  buffers: readonly Parameter[],
): (axes: readonly ProcessGroup[]) => Promise<void> {
  const values = () => buffers.map(({ value }) => value)
  /** The values of the buffers after the last call, to find changed ones. */
  let known = values()
  return async (axes) => {
    if (buffers.length === 0) return
    const changed = Uint8Array.from(values(), (value, i) => Number(value !== known[i]))
    for (const axis of axes) {
      if (axis.size === 1) continue
      await axis.allReduce(changed, { op: 'max', label: 'changed buffers' })
      await broadcast(
        buffers.filter((_, i) => changed[i] !== 0),
        axis,
      )
    }
    known = values()
  }
}

/** Broadcasts all buffers in one message, because buffers are many and small. */
async function broadcast(buffers: readonly Parameter[], group: ProcessGroup): Promise<void> {
  const size = buffers.reduce((sum, { value }) => sum + value.size, 0)
  if (size === 0) return
  const all = group.allocUnsafe('float32', size)
  try {
    let at = 0
    const places = buffers.map((buffer) => {
      const values = all.subarray(at, (at += buffer.value.size))
      return { buffer, values, facts: { name: buffer.name, bytes: values.byteLength } }
    })
    for (const { buffer, values, facts } of group.rank === 0 ? places : []) {
      await timeSpan(group.spans, 'pack', facts, () => writeTo(buffer.value, values))
    }
    await group.broadcast(all, 0, { label: 'buffers' })
    for (const { buffer, values, facts } of group.rank === 0 ? [] : places) {
      timeSpan(group.spans, 'unpack', facts, () => {
        replaceValue(buffer, tensorFrom(values, buffer.shape))
      })
    }
  } finally {
    group.free(all)
  }
}
