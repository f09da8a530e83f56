import { runWorld, type PersistentOperation, type ProcessGroup } from '@tsrun/distributed'
import { preparedMessages } from '../../../internals/training.ts'

const LENGTH = 6000

/** Counts what is allocated and prepared. */
function counted(group: ProcessGroup): {
  counts: { allocated: number; freed: number; prepared: number }
  messages: ReturnType<typeof preparedMessages>
  prepare: (key: number) => (buffer: Float32Array) => PersistentOperation
} {
  const counts = { allocated: 0, freed: 0, prepared: 0 }
  const counting = {
    allocUnsafe(dtype: 'float32', length: number) {
      counts.allocated++
      return group.allocUnsafe(dtype, length)
    },
    free(buffer: Float32Array) {
      counts.freed++
      group.free(buffer)
    },
  } as ProcessGroup
  const messages = preparedMessages(counting)
  const prepare = (tag: number) => (buffer: Float32Array) => {
    counts.prepared++
    return group.rank === 0
      ? group.sendInit(buffer, 1, { tag })
      : group.recvInit(buffer, 0, { tag })
  }
  return { counts, messages, prepare }
}

describe('preparedMessages', () => {
  it('uses the same buffers and operations in each pass', async () => {
    await runWorld({ size: 2, seed: 5 }, async (group) => {
      const { counts, messages, prepare } = counted(group)
      for (let pass = 0; pass < 4; pass++) {
        for (let key = 0; key < 3; key++) {
          const message = messages.take(key, LENGTH, prepare(key))
          if (group.rank === 0) {
            message.buffer.fill(10 * pass + key)
            messages.send(message)
            await message.operation.done()
          } else {
            message.operation.start()
            await message.operation.done()
            expect(message.buffer.every((value) => value === 10 * pass + key)).toBe(true)
            messages.release(message)
          }
        }
      }
      expect(counts).toEqual({ allocated: 1, freed: 0, prepared: 3 })
      messages.dispose()
      expect(counts.freed).toBe(1)
    })
  })

  it('does not reuse a buffer before its send has ended', async () => {
    await runWorld({ size: 2, seed: 5 }, async (group) => {
      const { counts, messages, prepare } = counted(group)
      if (group.rank === 0) {
        const filling = messages.take(0, LENGTH, prepare(0))
        const next = messages.take(1, LENGTH, prepare(1))
        expect(next.buffer).not.toBe(filling.buffer)
        for (const message of [filling, next]) messages.send(message)
        const third = messages.take(2, LENGTH, prepare(2))
        expect([filling.buffer, next.buffer]).not.toContain(third.buffer)
        messages.release(third)
        // frees the buffers of the two that are under way once they have ended
        messages.dispose()
        expect(counts).toEqual({ allocated: 3, freed: 1, prepared: 3 })
        await group.barrier()
        await Promise.all([filling.operation.done(), next.operation.done()])
        expect(counts.freed).toBe(3)
      } else {
        await group.barrier()
        for (const tag of [0, 1]) await group.recv(new Float32Array(LENGTH), 0, { tag })
        messages.dispose()
      }
    })
  })
})
