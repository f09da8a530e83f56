import { runInNewContext } from 'node:vm'
import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import {
  copyCounts,
  createTensor,
  loadBackend,
  tensorFrom,
  tf,
  viewOf,
  writeTo,
  type CopyDirection,
  type HostArray,
  type Tensor,
} from '@tsrun/training'

const MIB = 2 ** 20

/** What `run` copies between tensors and arrays, as the counter says. */
async function copiesOf(direction: CopyDirection, run: () => void | Promise<void>) {
  const before = copyCounts()[direction]
  await run()
  const after = copyCounts()[direction]
  return { count: after.count - before.count, bytes: after.bytes - before.bytes }
}

/** How often `run` moves 4 MiB by the methods of typed arrays. */
async function movesOf(run: () => void | Promise<void>): Promise<number> {
  const prototype = Object.getPrototypeOf(Float32Array.prototype) as Float32Array
  const spies = [jest.spyOn(prototype, 'set'), jest.spyOn(prototype, 'slice')] as const
  try {
    await run()
    return spies
      .flatMap((spy) => spy.mock.contexts as unknown as HostArray[])
      .filter(({ byteLength }) => byteLength >= 4 * MIB).length
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}

describe.each(['wasm', 'cpu'] as const)('the backend %s', (name) => {
  beforeAll(() => loadBackend(name))

  it('creates a tensor in place that operations can use', () => {
    const before = tf.memory().numTensors
    const tensor = tf.tidy(() =>
      createTensor([2, 3], (values) => {
        values.set([1, 2, 3, 4, 5, 6])
      }),
    )
    expect(tensor.shape).toEqual([2, 3])
    const sums = tf.sum(tensor, 0)
    expect([...sums.dataSync()]).toEqual([5, 7, 9])
    sums.dispose()
    tensor.dispose()
    expect(tf.memory().numTensors).toBe(before)
  })

  it('gives views of results', () => {
    const tensor = tf.add(tf.ones([4]), tf.tensor1d([1, 2, 3, 4]))
    expect([...viewOf(tensor)]).toEqual([2, 3, 4, 5])
    tensor.dispose()
  })

  it.each([
    ['float32', Float32Array.of(1.5, -2, 0, 1e-38, NaN, Infinity)],
    ['int32', Int32Array.of(1, -2, 0, 2 ** 31 - 1, -(2 ** 31), 7)],
    ['bool', Uint8Array.of(1, 0, 0, 1, 1, 0)],
  ] as const)('moves %s values from an array to a tensor and back', async (dtype, values) => {
    const source = values.slice()
    const tensor = tf.tidy(() => tensorFrom(source as never, [2, 3], dtype))
    source.fill(0)
    expect({ shape: tensor.shape, dtype: tensor.dtype }).toEqual({ shape: [2, 3], dtype })
    await writeTo(tensor, source)
    expect(source).toEqual(values)
    tensor.dispose()
  })

  it('copies results of operations, scalars and empty tensors', async () => {
    const target = new Uint8Array(3)
    const isSmall = tf.less(tf.tensor1d([1, 5, 2]), tf.scalar(3))
    await writeTo(isSmall, target)
    expect([...target]).toEqual([1, 0, 1])

    const scalar = tensorFrom(Float32Array.of(3), [])
    expect(tf.square(scalar).dataSync()[0]).toBe(9)

    const empty = tensorFrom(new Int32Array(0), [0, 4], 'int32')
    await writeTo(empty, new Int32Array(0))
    expect(empty.shape).toEqual([0, 4])
    for (const tensor of [isSmall, scalar, empty]) tensor.dispose()
  })

  it('moves 4 MiB between a tensor and an arena in at most two copies each way', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const arena = group.alloc('float32', MIB)
      const tensor = tf.range(0, MIB, 1, 'float32')
      tf.square(tensor).dispose()

      let out: { count: number; bytes: number } | undefined
      const movedOut = await movesOf(async () => {
        out = await copiesOf('toHost', () => writeTo(tensor, arena))
      })
      expect(out).toEqual({ count: movedOut, bytes: movedOut * 4 * MIB })
      expect(movedOut).toBeLessThanOrEqual(2)
      expect([arena[0], arena[12_345], arena[MIB - 1]]).toEqual([0, 12_345, MIB - 1])

      let copy: Tensor | undefined
      let back: { count: number; bytes: number } | undefined
      const movedBack = await movesOf(async () => {
        back = await copiesOf('toTensor', () => {
          copy = tensorFrom(arena, [MIB])
          // the first operation may copy
          tf.square(copy).dispose()
        })
      })
      expect(back).toEqual({ count: movedBack, bytes: movedBack * 4 * MIB })
      expect(movedBack).toBeLessThanOrEqual(2)
      expect(tf.all(tf.equal(copy!, tensor)).dataSync()[0]).toBe(1)
      copy!.dispose()
      tensor.dispose()
      group.free(arena)
    })
  })

  it('leaks nothing in 1,000 round trips', async () => {
    const array = new Float32Array(1000).fill(1)
    const trip = async (): Promise<void> => {
      const tensor = tensorFrom(array, [10, 100])
      await writeTo(tensor, array)
      tensor.dispose()
    }
    await trip()
    const before = tf.memory()
    for (let i = 0; i < 1000; i++) await trip()
    expect(tf.memory()).toEqual(before)
    expect(array.every((value) => value === 1)).toBe(true)
  })

  it('refuses arrays that do not fit a tensor, also from another realm', async () => {
    const tensor = tf.ones([2, 3])
    const before = tf.memory().numTensors
    const refused = (array: unknown, found: string) => {
      expect(() => void writeTo(tensor, array as Float32Array)).toThrow(
        expect.objectContaining({
          code: 'ERR_TSR_ARGUMENT',
          message: expect.stringMatching(
            new RegExp(`target is ${found}; expected Float32Array\\[6\\], for a float32 tensor`),
          ) as string,
        }),
      )
    }
    refused(new Float32Array(5), 'Float32Array\\[5\\]')
    refused(new Int32Array(6), 'Int32Array\\[6\\]')
    refused(new DataView(new ArrayBuffer(24)), 'DataView\\[24\\]')
    refused([1, 2, 3, 4, 5, 6], 'object')
    refused(undefined, 'undefined')
    expect(() => tensorFrom(new Float32Array(6), [7])).toThrow(/source is Float32Array\[6\]/)
    expect(() => tensorFrom(new Float32Array(6), [6], 'int32' as 'float32')).toThrow(/Int32Array/)
    expect(() => tensorFrom(new Float32Array(6), [6], 'complex64' as 'float32')).toThrow(
      /one of float32, int32, bool/,
    )
    expect(tf.memory().numTensors).toBe(before)

    const foreign = runInNewContext('new Float32Array(6)') as Float32Array
    await writeTo(tensor, foreign)
    expect([...foreign]).toEqual([1, 1, 1, 1, 1, 1])
    tensor.dispose()
  })
})
