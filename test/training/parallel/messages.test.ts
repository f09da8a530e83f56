import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { allReduceTensor, loadBackend, recvTensor, sendTensor, tf } from '@tsrun/training'
import { errorOf } from '../../distributed/support/outcome.ts'

describe.each(['wasm', 'cpu'] as const)('tensor messages on %s', (backend) => {
  beforeAll(async () => {
    await loadBackend(backend)
  })

  it.each([
    ['float32', [1.5, -2, 3, 4, 5, 6]],
    ['int32', [1, -2, 3, 4, 5, 6]],
    ['bool', [1, 0, 0, 1, 1, 0]],
  ] as const)('carry %s values round a ring', async (dtype, values) => {
    const before = tf.memory().numTensors
    await runWorld({ size: 3, seed: 1 }, async (group) => {
      const own = tf.tensor(
        values.map((value) => value * (group.rank + 1)),
        [2, 3],
        dtype,
      )
      const sending = sendTensor(group, own, group.next, { tag: 5 })
      const expected = values.map((value) => value * (group.previous + 1))
      own.dispose()
      const received = await recvTensor(group, [2, 3], group.previous, { tag: 5, dtype })
      await sending
      expect(received).toMatchObject({ dtype, shape: [2, 3] })
      const given = dtype === 'bool' ? expected.map((value) => Math.sign(value)) : expected
      expect([...received.dataSync()].map(Number)).toEqual(given)
      received.dispose()
    })
    expect(tf.memory().numTensors).toBe(before)
  })

  it('are received in the order of the sends, without waiting for them', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      if (group.rank === 0) {
        const sends = [1, 2, 3].map(async (value) => {
          const tensor = tf.fill([4], value)
          const sent = sendTensor(group, tensor, group.next)
          tensor.dispose()
          await sent
        })
        await Promise.all(sends)
      } else {
        for (const value of [1, 2, 3]) {
          const received = await recvTensor(group, [4], 'any')
          expect([...received.dataSync()]).toEqual([value, value, value, value])
          received.dispose()
        }
      }
    })
  })

  it('in an all-reduce are summed or averaged into a new tensor', async () => {
    await runWorld({ size: 3, seed: 2 }, async (group) => {
      const own = tf.tensor([group.rank, 10], [2, 1])
      const sum = await allReduceTensor(group, own)
      const mean = await allReduceTensor(group, own, { op: 'avg' })
      expect(sum.shape).toEqual([2, 1])
      expect([...sum.dataSync()]).toEqual([3, 30])
      expect([...mean.dataSync()]).toEqual([1, 10])
      expect([...own.dataSync()]).toEqual([group.rank, 10])
      tf.dispose([own, sum, mean])
      const int = tf.scalar(group.rank, 'int32')
      const largest = await allReduceTensor(group, int, { op: 'max' })
      expect(largest.dtype).toBe('int32')
      expect(largest.dataSync()[0]).toBe(2)
      tf.dispose([int, largest])
    })
  })

  it('free their buffers, also when an operation fails', async () => {
    await runWorld({ size: 2, seed: 1 }, async (group) => {
      // a third of an arena each time
      const values = (20 * 2 ** 20) / 4
      for (let i = 0; i < 6; i++) {
        const error = await errorOf(() => recvTensor(group, [values], group.next, { timeout: 1 }))
        expect(error).toMatchObject({ code: 'ERR_TSR_OPERATION_TIMEOUT' })
      }
      const tensor = tf.zeros([values])
      const refused = await errorOf(() => sendTensor(group, tensor, 2))
      expect(refused).toMatchObject({ code: 'ERR_TSR_RANK_RANGE' })
      for (let i = 0; i < 4; i++) (await allReduceTensor(group, tensor)).dispose()
      tensor.dispose()
    })
  })
})

it('tensor messages explain an invalid argument', async () => {
  await loadBackend('cpu')
  await runWorld({ size: 1 }, async (group) => {
    const tensor = tf.tensor([1])
    const text = tf.tensor(['a'])
    const refusals: [() => Promise<unknown>, string][] = [
      [() => sendTensor(undefined as unknown as ProcessGroup, tensor, 0), 'group is undefined'],
      [() => sendTensor(group, [1] as never, 0), 'tensor is an array'],
      [() => allReduceTensor(group, new Float32Array(2) as never), 'expected a tensor'],
      [() => sendTensor(group, text, 0), 'is "string"; expected one of "float32", "int32", "bool"'],
      [() => recvTensor(group, 4 as never, 0), 'shape is 4; expected a shape'],
      [() => recvTensor(group, [2, -1], 0), 'expected a shape'],
      [() => recvTensor(group, [2], 0, { dtype: 'float64' as never }), 'is "float64"'],
    ]
    for (const [call, message] of refusals) {
      const error = await errorOf(call)
      expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      expect(error?.message).toContain(message)
    }
    tf.dispose([tensor, text])
  })
})
