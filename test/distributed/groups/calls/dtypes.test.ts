import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { thrownBy } from '../../support/outcome.ts'
import { dtypes, fill, newArray, reduced, sameBits } from '../../support/values.ts'

/** Runs on two ranks. */
async function onTwo(run: (group: ProcessGroup) => Promise<void>): Promise<void> {
  await runWorld({ size: 2, seed: 5 }, run)
}

const one = { float16: 0x3c00, bfloat16: 0x3f80 } as const
const two = { float16: 0x4000, bfloat16: 0x4000 } as const

describe('the dtype of a buffer', () => {
  it.each(dtypes)('is the one passed to alloc(), also for subarrays: %s', async (dtype) => {
    await onTwo(async (group) => {
      const whole = group.alloc(dtype, 40)
      const part = whole.subarray(3, 33)
      fill(part, dtype, group.rank)
      await group.allReduce(part)
      expect(sameBits(part, reduced(dtype, 'sum', 2, 30))).toBe(true)
      group.free(whole)
      // the memory may hold something else now
      const bytes = group.alloc('uint8', 40).fill(200)
      await group.allReduce(bytes)
      expect(bytes[7]).toBe(144)
    })
  })

  it.each(['float16', 'bfloat16'] as const)('can be set by an option: %s', async (dtype) => {
    await onTwo(async (group) => {
      const buffer = Uint16Array.of(one[dtype])
      await group.allReduce(buffer, { dtype })
      expect(buffer[0]).toBe(two[dtype])
    })
  })

  it('must be given for arrays of 16-bit integers', async () => {
    await onTwo(async (group) => {
      expect(thrownBy(() => group.allReduce(new Uint16Array(3)))).toMatchObject({
        code: 'ERR_TSR_BUFFER',
        message: expect.stringContaining('may hold float16 or bfloat16; pass `dtype`'),
      })
      await group.barrier()
    })
  })

  it('is uint8 for bytes, or bool if the option says so', async () => {
    await onTwo(async (group) => {
      const buffer = Uint8Array.of(255, 1, 0)
      await group.allReduce(buffer)
      expect([...buffer]).toEqual([254, 2, 0])
      await group.allReduce(buffer, { dtype: 'bool' })
      expect([...buffer]).toEqual([1, 1, 0])
      const truths = group.alloc('bool', 1).fill(1)
      await group.allReduce(truths, { dtype: 'uint8' })
      expect(truths[0]).toBe(2)
    })
  })

  it('must be known and match the type of the array', async () => {
    await onTwo(async (group) => {
      const wrong = thrownBy(() => group.allReduce(new Float32Array(1), { dtype: 'bfloat16' }))
      expect(wrong).toMatchObject({
        code: 'ERR_TSR_BUFFER',
        message: expect.stringContaining('a Float32Array, but bfloat16 is stored in a Uint16Array'),
      })
      const unknown = 'float8' as never
      expect(
        thrownBy(() => group.broadcast(new Uint8Array(1), 0, { dtype: unknown })),
      ).toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name: 'dtype' } })
      await group.barrier()
    })
  })

  const { Float16Array } = globalThis as unknown as {
    Float16Array?: new (values: number[]) => never
  }
  if (Float16Array !== undefined) {
    it('is float16 for a Float16Array', async () => {
      await onTwo(async (group) => {
        const buffer = new Float16Array([1.5, -2])
        await group.allReduce(buffer)
        expect([...(buffer as number[])]).toEqual([3, -4])
      })
    })
  }
})

describe('reductions', () => {
  it.each([
    ['float32', 'bxor', 'sum, avg, product, min, max'],
    ['bfloat16', 'band', 'sum, avg, product, min, max'],
    ['bool', 'avg', 'sum, product, min, max, band, bor, bxor'],
    ['int8', 'avg', 'sum, product, min, max, band, bor, bxor'],
    ['uint64', 'avg', 'sum, product, min, max, band, bor, bxor'],
  ] as const)(
    'are refused if the dtype has no such operation: %s %j',
    async (dtype, op, allowed) => {
      await onTwo(async (group) => {
        const calls = [
          () => group.allReduce(newArray(dtype, 2), { op, dtype }),
          () => group.reduce(newArray(dtype, 2), 0, { op, dtype }),
          () => group.reduceScatter(newArray(dtype, 1), newArray(dtype, 2), { op, dtype }),
          () => group.allReduceCoalesced([newArray(dtype, 1)], { op, dtype }),
        ]
        for (const call of calls) {
          expect(thrownBy(call)).toMatchObject({
            code: 'ERR_TSR_REDUCTION',
            message: expect.stringContaining(`for ${dtype}, which supports ${allowed}`),
          })
        }
        await group.barrier()
      })
    },
  )
})
