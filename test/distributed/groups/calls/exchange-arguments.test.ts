import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { errorOf, thrownBy } from '../../support/outcome.ts'

type Call = (group: ProcessGroup) => unknown

const floats = (length: number): Float32Array => new Float32Array(length)

/** What a caller without types may pass. */
function untyped(value: unknown): never {
  return value as never
}

/** Gives the memory of an array away. */
function detach({ buffer }: Float32Array): void {
  structuredClone(buffer, { transfer: [buffer as ArrayBuffer] })
}

/** Calls as rank 1 of three; nothing is exchanged. */
async function amongThree(call: Call): Promise<unknown> {
  const errors = await runWorld({ size: 3 }, async (group) => {
    await Promise.resolve()
    return group.rank === 1 ? thrownBy(() => call(group)) : undefined
  })
  return errors[1]
}

describe('arguments of exchanges', () => {
  it.each<[string, Call, string]>([
    ['gather without room', (g) => g.gather(null, floats(2), 1), 'output is of the type Null'],
    [
      'a gather output that is too short',
      (g) => g.gather(floats(5), floats(2), 1),
      '5 elements; expected 3 x 2',
    ],
    [
      'two dtypes of a gather',
      (g) => g.gather(floats(3), new Int32Array(1), 1),
      'but input is int32',
    ],
    ['scatter without input', (g) => g.scatter(floats(2), null, 1), 'input is of the type Null'],
    [
      'a scatter input that is too long',
      (g) => g.scatter(floats(2), floats(7), 1),
      '7 elements; expected 3 x 2',
    ],
    ['allToAll, no multiple', (g) => g.allToAll(floats(7), floats(7)), 'expected 3 x 2'],
    ['allToAll, lengths', (g) => g.allToAll(floats(9), floats(6)), 'output has 9 elements'],
    ['allGatherV, counts', (g) => g.allGatherV(floats(3), floats(1), [1, 2]), 'has 2 entries'],
    ['allGatherV, no list', (g) => g.allGatherV(floats(3), floats(1), untyped(3)), 'is not a list'],
    [
      'allGatherV, sum',
      (g) => g.allGatherV(floats(3), floats(2), [1, 2, 1]),
      'expected 4, the sum',
    ],
    ['allGatherV, own', (g) => g.allGatherV(floats(4), floats(1), [1, 2, 1]), 'counts[1]'],
    ['a negative count', (g) => g.allGatherV(floats(1), floats(1), [1, -1, 1]), 'counts[1] is -1'],
    ['a broken count', (g) => g.allGatherV(floats(1), floats(1), [1, 0.5, 1]), 'counts[1] is 0.5'],
    [
      'allToAllV, input',
      (g) => g.allToAllV(floats(3), floats(4), [1, 1, 1], [1, 1, 1]),
      'input has 4 elements; expected 3, the sum of inputCounts',
    ],
    [
      'allToAllV, own slice',
      (g) => g.allToAllV(floats(3), floats(3), [1, 1, 1], [0, 2, 1]),
      'inputCounts[1] = 2 elements, but expects outputCounts[1] = 1',
    ],
    ['no buffers', (g) => g.allReduceCoalesced([]), 'the list of buffers is empty'],
    ['one buffer', (g) => g.allReduceCoalesced(untyped(floats(2))), 'buffers is not a list'],
    [
      'two dtypes',
      (g) => g.allReduceCoalesced([floats(1), new Int32Array(1)]),
      'buffers[0] is float32, but buffers[1] is int32',
    ],
  ])('are refused if counts or buffers do not match: %s', async (_, call, words) => {
    expect(await amongThree(call)).toMatchObject({
      code: 'ERR_TSR_BUFFER',
      message: expect.stringContaining(words),
    })
  })

  it('are refused if a root, a list of values or an algorithm is invalid', async () => {
    for (const call of [
      (g: ProcessGroup) => g.gather(null, floats(1), 3),
      (g: ProcessGroup) => g.scatter(floats(1), null, -1),
      (g: ProcessGroup) => g.gather(null, floats(1), NaN),
      (g: ProcessGroup) => g.scatter(floats(1), null, 1.5),
      (g: ProcessGroup) => g.gatherObject(1, 7),
      (g: ProcessGroup) => g.scatterObject(null, 7),
    ]) {
      expect(await amongThree(call)).toMatchObject({ code: 'ERR_TSR_RANK_RANGE' })
    }
    for (const call of [
      (g: ProcessGroup) => g.scatterObject([1, 2], 1),
      (g: ProcessGroup) => g.scatterObject(null, 1),
    ]) {
      expect(await amongThree(call)).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
    }
    const call: Call = (g) => g.allToAll(floats(3), floats(3), { algorithm: 'ring' })
    expect(await amongThree(call)).toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining('for allToAll'),
    })
  })

  it.each(['arena', 'heap'])('are refused if buffers overlap (%s)', async (place) => {
    const overlapping: ((group: ProcessGroup, whole: Float32Array) => unknown)[] = [
      (g, whole) => g.allToAll(whole.subarray(0, 6), whole.subarray(3, 9)),
      (g, whole) => g.allToAll(whole, whole),
      (g, whole) => g.allGather(whole.subarray(0, 6), whole.subarray(0, 2)),
      (g, whole) => g.allToAllV(whole.subarray(0, 3), whole.subarray(0, 3), [1, 1, 1], [1, 1, 1]),
      (g, whole) => g.reduceScatter(whole.subarray(0, 2), whole.subarray(0, 6)),
      (g, whole) => g.gather(whole.subarray(0, 6), whole.subarray(1, 3), 1),
    ]
    for (const call of overlapping) {
      const error = await amongThree((group) =>
        call(group, place === 'arena' ? group.alloc('float32', 9) : floats(9)),
      )
      expect(error).toMatchObject({
        code: 'ERR_TSR_BUFFER',
        message: expect.stringContaining('overlap'),
      })
    }
  })

  it('are refused if a buffer is detached before or during the operation', async () => {
    const detached = floats(4)
    detach(detached)
    expect(await amongThree((group) => group.allReduce(detached))).toMatchObject({
      code: 'ERR_TSR_BUFFER',
      message: expect.stringContaining('detached'),
    })
    const errors = await runWorld({ size: 2, seed: 5 }, async (group) => {
      const buffers = [floats(4), floats(4)]
      const works = [group.allReduce(buffers[0]!), group.allReduceCoalesced([buffers[1]!])]
      if (group.rank === 0) {
        buffers.forEach(detach)
      }
      const ends = [await errorOf(() => works[0]!), await errorOf(() => works[1]!)]
      // The group still works.
      await group.barrier()
      return ends
    })
    for (const error of errors[0]!) {
      expect(error).toMatchObject({
        code: 'ERR_TSR_BUFFER',
        message: expect.stringContaining('while the operation was under way'),
      })
    }
    expect(errors[1]).toEqual([undefined, undefined])
  })

  it('are refused in all calls after the group was destroyed', async () => {
    await runWorld({ size: 2 }, async (group) => {
      await group.destroy()
      for (const call of [
        () => group.gather(floats(2), floats(1), group.rank),
        () => group.scatter(floats(1), floats(2), group.rank),
        () => group.allToAll(floats(2), floats(2)),
        () => group.allToAllV(floats(2), floats(2), [1, 1], [1, 1]),
        () => group.allGatherV(floats(2), floats(1), [1, 1]),
        () => group.allReduceCoalesced([floats(1)]),
        () => group.monitoredBarrier(),
        () => group.batchIsendIrecv([{ op: 'send', buffer: floats(1), peer: 1 - group.rank }]),
      ]) {
        expect(thrownBy(call)).toMatchObject({ code: 'ERR_TSR_GROUP_DESTROYED' })
      }
    })
  })

  it('leave no memory allocated if they are refused', async () => {
    await runWorld({ size: 1, memory: 4 * 1024 * 1024 }, async (group) => {
      for (let i = 0; i < 20; i++) {
        thrownBy(() => group.allReduceCoalesced([floats(100_000)], { timeout: -1 }))
        thrownBy(() => group.allGatherV(floats(600_000), floats(600_000), [600_000]))
      }
      await group.allReduceCoalesced([floats(200_000), floats(200_000)])
    })
  })
})
