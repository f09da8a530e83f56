import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { thrownBy } from '../../support/outcome.ts'

/** What a caller without types may pass. */
function untyped(value: unknown): never {
  return value as never
}

const floats = (length: number): Float32Array => new Float32Array(length)

async function alone(check: (group: ProcessGroup) => void): Promise<void> {
  await runWorld({ size: 1 }, async (group) => {
    check(group)
    await Promise.resolve()
  })
}

/** Calls as rank 1 of three; nothing is exchanged. */
async function amongThree(call: (group: ProcessGroup) => unknown): Promise<unknown> {
  const errors = await runWorld({ size: 3 }, async (group) => {
    await Promise.resolve()
    return group.rank === 1 ? thrownBy(() => call(group)) : undefined
  })
  return errors[1]
}

describe('buffers', () => {
  it.each([
    ['a DataView', new DataView(new ArrayBuffer(8))],
    ['an array', [1, 2]],
    ['a number', 3],
    ['nothing', undefined],
  ])('that are not typed arrays are refused: %s', async (_, buffer) => {
    const wrong = untyped(buffer)
    const calls: ((group: ProcessGroup) => unknown)[] = [
      (group) => group.allReduce(wrong),
      (group) => group.broadcast(wrong, 0),
      (group) => group.reduce(wrong, 0),
      (group) => group.send(wrong, 0),
      (group) => group.recv(wrong, 0),
      (group) => group.allGather(wrong, floats(1)),
      (group) => group.allGather(floats(1), wrong),
      (group) => group.reduceScatter(wrong, floats(3)),
      (group) => group.reduceScatter(floats(1), wrong),
    ]
    for (const call of calls) {
      expect(await amongThree(call)).toMatchObject({
        code: 'ERR_TSR_BUFFER',
        message: expect.stringContaining('float32, float64, float16'),
      })
    }
  })

  it.each([
    [
      'a promise',
      Promise.resolve(floats(1)),
      'buffer is of the type Promise; expected a typed array',
    ],
    ['an array', [1, 2], 'expected a typed array, as from `Float32Array.from(values)`'],
  ])('that are not typed arrays are refused with advice: %s', async (_, buffer, words) => {
    expect(await amongThree((group) => group.allReduce(untyped(buffer)))).toMatchObject({
      message: expect.stringContaining(words),
    })
  })

  it.each<[string, (group: ProcessGroup) => unknown, string]>([
    [
      'too short',
      (g) => g.allGather(floats(5), floats(2)),
      'output has 5 elements; expected 3 x 2',
    ],
    [
      'too long',
      (g) => g.reduceScatter(floats(2), floats(7)),
      'input has 7 elements; expected 3 x 2',
    ],
    ['of two dtypes', (g) => g.allGather(floats(3), new Int32Array(1)), 'but input is int32'],
  ])(
    'of collectives with slices are refused if lengths or dtypes do not match: %s',
    async (_, call, words) => {
      expect(await amongThree(call)).toMatchObject({
        code: 'ERR_TSR_BUFFER',
        message: expect.stringContaining(words),
      })
    },
  )
})

describe('ranks', () => {
  it.each([-1, 3, 1.5, NaN, Infinity, untyped('0'), untyped(undefined)])(
    'outside the group are refused: %p',
    async (rank) => {
      const calls: ((group: ProcessGroup) => unknown)[] = [
        (group) => group.send(floats(1), rank),
        (group) => group.recv(floats(1), rank),
        (group) => group.broadcast(floats(1), rank),
        (group) => group.reduce(floats(1), rank),
        (group) => group.sendObject({}, rank),
        (group) => group.recvObject(rank),
        (group) => group.broadcastObject({}, rank),
      ]
      for (const call of calls) {
        expect(await amongThree(call)).toMatchObject({ code: 'ERR_TSR_RANK_RANGE' })
      }
    },
  )

  it('do not block when they send a message to themselves', async () => {
    for (const call of [
      (group: ProcessGroup) => {
        group.sendSync(floats(1), 1)
      },
      (group: ProcessGroup) => group.recvSync(floats(1), 1),
      (group: ProcessGroup) => {
        group.sendObjectSync({}, 1)
      },
      (group: ProcessGroup) => group.recvObjectSync(1),
    ]) {
      expect(await amongThree(call)).toMatchObject({
        code: 'ERR_TSR_SELF_SEND',
        message: expect.stringContaining('batchIsendIrecv'),
      })
    }
  })
})

describe('the options of calls', () => {
  it.each([-1, 0.5, 2 ** 31, NaN, untyped('1')])('are refused if the tag is %p', async (tag) => {
    for (const call of [
      (group: ProcessGroup) => group.send(floats(1), 0, { tag }),
      (group: ProcessGroup) => group.recv(floats(1), 0, { tag }),
      (group: ProcessGroup) => group.sendObject(1, 0, { tag }),
      (group: ProcessGroup) => group.recvObject(0, { tag }),
    ]) {
      expect(await amongThree(call)).toMatchObject({
        code: 'ERR_TSR_ARGUMENT',
        facts: { name: 'tag' },
      })
    }
  })

  it.each([0, -5, NaN, untyped('100')])('are refused if the time-out is %p', async (timeout) => {
    expect(await amongThree((group) => group.barrier({ timeout }))).toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      facts: { name: 'timeout' },
    })
  })

  it('are refused if the reduction or the algorithm is invalid', async () => {
    const op = untyped('median')
    expect(await amongThree((group) => group.allReduce(floats(1), { op }))).toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining('"sum", "avg", "product", "min", "max"'),
    })
    const algorithm = untyped('star')
    expect(await amongThree((group) => group.allReduce(floats(1), { algorithm }))).toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining('ring, recursive-doubling'),
    })
    const call = (group: ProcessGroup): unknown =>
      group.reduceScatter(floats(1), floats(3), { algorithm: 'recursive-doubling' })
    expect(await amongThree(call)).toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining('recursive-halving, direct, window for reduceScatter'),
    })
  })

  it('are refused if unknown, and the error names the most similar option', async () => {
    const options = untyped({ timout: 5 })
    for (const call of [
      (group: ProcessGroup) => group.allReduce(floats(1), options),
      (group: ProcessGroup) => group.barrier(options),
      (group: ProcessGroup) => group.send(floats(1), 0, options),
      (group: ProcessGroup) => group.sendObject(1, 0, options),
    ]) {
      expect(await amongThree(call)).toMatchObject({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining('did you mean timeout?'),
      })
    }
    const text = untyped('sum')
    expect(await amongThree((group) => group.allReduce(floats(1), text))).toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining('options is "sum"; expected an object'),
    })
  })

  it('leave the group usable if they are refused', async () => {
    await runWorld({ size: 2 }, async (group) => {
      if (group.rank === 0) {
        thrownBy(() => group.barrier({ timeout: -1 }))
        thrownBy(() => group.allReduce(floats(1), { op: untyped('?') }))
      }
      const buffer = Float32Array.of(2)
      await group.allReduce(buffer)
      expect(buffer[0]).toBe(4)
    })
  })
})

describe('the arena', () => {
  it('gives zero-filled arrays of each dtype', async () => {
    await alone((group) => {
      for (const dtype of ['float32', 'float64', 'int32'] as const) {
        const first = group.alloc(dtype, 100).fill(7)
        group.free(first)
        const again = group.alloc(dtype, 100)
        expect(again.every((value) => value === 0)).toBe(true)
        expect(again.length).toBe(100)
      }
      expect(group.alloc('float32', 0).length).toBe(0)
    })
  })

  it.each([-1, 1.5, NaN, untyped('3')])('refuses a length of %p', async (length) => {
    await alone((group) => {
      expect(thrownBy(() => group.alloc('float32', length))).toMatchObject({
        code: 'ERR_TSR_ARGUMENT',
      })
    })
  })

  it('refuses an unknown dtype', async () => {
    await alone((group) => {
      expect(thrownBy(() => group.alloc(untyped('uint16'), 4))).toMatchObject({
        code: 'ERR_TSR_ARGUMENT',
        facts: { name: 'dtype' },
      })
    })
  })

  it('fails when it is full, and reuses freed memory', async () => {
    await runWorld({ size: 1, memory: 4 * 1024 * 1024 }, async (group) => {
      const big = group.alloc('float32', 400_000)
      expect(thrownBy(() => group.alloc('float32', 400_000))).toMatchObject({
        code: 'ERR_TSR_ARENA_EXHAUSTED',
        facts: { bytes: 1_600_000, capacity: 2 * 1024 * 1024 },
      })
      // a buffer from elsewhere has no room to be staged
      expect(thrownBy(() => group.allReduce(floats(400_000)))).toMatchObject({
        code: 'ERR_TSR_ARENA_EXHAUSTED',
      })
      group.free(big)
      await group.allReduce(floats(400_000))
      const input = floats(300_000)
      for (let i = 0; i < 5; i++) {
        // the input finds a place, the output does not
        expect(thrownBy(() => group.allGather(floats(300_000), input))).toMatchObject({
          code: 'ERR_TSR_ARENA_EXHAUSTED',
        })
      }
      group.free(group.alloc('float32', 400_000))
    })
  })

  it('refuses to free memory that it did not allocate or has already freed', async () => {
    await alone((group) => {
      const buffer = group.alloc('float32', 64)
      for (const wrong of [floats(4), buffer.subarray(1), untyped(undefined)]) {
        expect(
          thrownBy(() => {
            group.free(wrong)
          })?.code,
        ).toBe('ERR_TSR_BUFFER')
      }
      group.free(buffer)
      expect(
        thrownBy(() => {
          group.free(buffer)
        })?.code,
      ).toBe('ERR_TSR_BUFFER')
    })
  })

  it('frees the staging buffers of operations that end without being awaited', async () => {
    await runWorld({ size: 2, memory: 8 * 1024 * 1024 }, async (group) => {
      for (let i = 0; i < 2000; i++) {
        if (group.rank === 0) void group.send(floats(2500), 1)
        else await group.recv(floats(2500), 0)
        await group.barrier()
      }
    })
  })
})
