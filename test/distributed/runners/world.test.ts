import {
  runWorld,
  type MessageEvent,
  type RankError,
  type Work,
  type WorldOptions,
} from '@tsrun/distributed'
import { errorOf, thrownBy } from '../support/outcome.ts'

describe('runWorld', () => {
  it('returns the results in rank order', async () => {
    expect(await runWorld({ size: 4 }, async (group) => Promise.resolve(group.rank))).toEqual([
      0, 1, 2, 3,
    ])
  })

  it.each([
    [
      { size: 2, ranks: 3 },
      'options is an object with the unknown key "ranks"; expected only size, seed',
    ],
    [{ size: 0 }, 'size is 0; expected a whole number from 1'],
  ])('refuses %j', async (options, message) => {
    const error = await errorOf(() => runWorld(options, () => Promise.resolve()))
    expect(error?.message).toContain(message)
  })

  it('names the ranks that wait for each other if all wait forever', async () => {
    const run = runWorld({ size: 3 }, async (group) => {
      await group.recv(new Float32Array(1), (group.rank + 1) % 3)
    })
    const error = await errorOf(() => run)
    expect(error?.code).toBe('ERR_TSR_DEADLOCK')
    expect(error?.message).toContain('rank 2: recv float32[1] from rank 0, tag 0 waits for rank 0')
  })

  it('names the ranks that wait forever after the others have ended', async () => {
    const run = runWorld({ size: 3 }, async (group) => {
      if (group.rank === 0) await group.barrier()
    })
    expect((await errorOf(() => run))?.message).toContain('rank 0: barrier by dissemination #0')
  })

  it('waits for a program that is busy with other work', async () => {
    await runWorld({ size: 2 }, async (group) => {
      if (group.rank === 0) await new Promise((resolve) => setTimeout(resolve, 700))
      await group.barrier()
    })
  })

  it('throws the error of a program after the others have ended', async () => {
    const ended: number[] = []
    const run = runWorld({ size: 3 }, async (group) => {
      if (group.rank === 1) throw new Error('mistake of rank 1')
      await errorOf(() => group.recv(new Float32Array(1), 1, { timeout: 20 }))
      ended.push(group.rank)
    })
    await expect(run).rejects.toThrow('mistake of rank 1')
    expect(ended).toHaveLength(2)
  })

  it('refuses synchronous calls', async () => {
    await runWorld({ size: 2 }, async (group) => {
      expect(
        thrownBy(() => {
          group.recvSync(new Float32Array(1), 1 - group.rank)
        }),
      ).toMatchObject({
        code: 'ERR_TSR_SYNC_UNSUPPORTED',
      })
      await Promise.resolve()
    })
  })

  it('completes calls at the end of a group that a refused synchronous call has started', async () => {
    await runWorld({ size: 2 }, async (group) => {
      const [outer, inner] = [Float32Array.of(1), Float32Array.of(2)]
      let other: Work | undefined
      if (group.rank === 0) {
        const options = {
          get op() {
            other ??= group.allReduce(inner)
            return 'sum' as const
          },
        }
        thrownBy(() => {
          group.allReduceSync(outer, options)
        })
        expect(other?.isCompleted()).toBe(false)
      } else {
        for (const buffer of [inner, outer]) group.allReduce(buffer).isCompleted()
      }
      await group.destroy()
      expect([outer[0], inner[0]]).toEqual([2, 4])
    })
  })

  it('runs all synchronous calls in a world of one', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const buffer = Float32Array.of(4)
      group.allReduceSync(buffer, { op: 'avg' })
      group.broadcastSync(buffer, 0)
      group.reduceSync(buffer, 0)
      group.barrierSync()
      expect(group.broadcastObjectSync({ a: 1 }, 0)).toEqual({ a: 1 })
      expect(group.allGatherObjectSync('x')).toEqual(['x'])
      expect(buffer[0]).toBe(4)
      await Promise.resolve()
    })
  })
})

describe('the errors of all ranks', () => {
  /** What a failing world rejects with, and the errors of its ranks. */
  async function failing(
    options: WorldOptions,
    program: Parameters<typeof runWorld>[1],
  ): Promise<{ thrown: unknown; errors: readonly RankError[] }> {
    let errors: readonly RankError[] = []
    const onErrors = (found: readonly RankError[]): void => {
      errors = found
    }
    const thrown: unknown = await runWorld({ ...options, onErrors }, program).then(
      () => undefined,
      (error: unknown) => error,
    )
    return { thrown, errors }
  }

  it('tell of calls that differ, each with both calls', async () => {
    const { thrown, errors } = await failing({ size: 4, timeout: 5000 }, async (group) => {
      await group.barrier()
      await group.allReduce(new Float32Array(group.rank === 2 ? 5 : 4))
    })
    expect(errors.map(({ rank }) => rank).sort()).toEqual([0, 1, 2, 3])
    expect(errors[0]!.error).toBe(thrown)
    expect(thrown).toMatchObject({
      code: 'ERR_TSR_MISMATCH',
      message: expect.stringMatching(/float32\[4\].*float32\[5\]|float32\[5\].*float32\[4\]/),
    })
  })

  it('put the error of a program before time-outs and lost ranks', async () => {
    const { thrown, errors } = await failing({ size: 3 }, async (group) => {
      if (group.rank === 1) {
        await new Promise((resolve) => setTimeout(resolve, 60))
        throw new Error('mistake of rank 1', { cause: 'none' })
      }
      await group.recv(new Float32Array(1), 1, { timeout: 20 })
    })
    expect(thrown).toMatchObject({ message: 'mistake of rank 1' })
    expect(errors.map(({ rank }) => rank)).toEqual([1, expect.anything(), expect.anything()])
    expect(errors[1]!.error).toMatchObject({ code: 'ERR_TSR_OPERATION_TIMEOUT' })
  })

  it('begin with the rank that a fault stops', async () => {
    const faults = [{ kind: 'lose', rank: 2, round: 20 }] as const
    const { errors } = await failing({ size: 4, timeout: 5000, faults }, async (group) => {
      for (let call = 0; call < 50; call++) await group.allReduce(new Float32Array(4))
    })
    expect(errors[0]).toMatchObject({ rank: 2, error: { code: 'ERR_TSR_OPERATION_ABORTED' } })
    expect(errors).toHaveLength(4)
  })

  it('are not told if all programs end well', async () => {
    const { thrown, errors } = await failing({ size: 2 }, (group) => Promise.resolve(group.rank))
    expect([thrown, errors]).toEqual([undefined, []])
  })
})

describe('the messages of a world', () => {
  async function messagesOf(
    size: number,
    program: Parameters<typeof runWorld>[1],
  ): Promise<MessageEvent[]> {
    const messages: MessageEvent[] = []
    await runWorld({ size, onMessage: (message) => messages.push(message) }, program)
    return messages
  }

  const idOf = ({ kind, rank, peer, sequence, step }: MessageEvent): string =>
    `${sequence}: ${kind === 'sent' ? `${rank} to ${peer}` : `${peer} to ${rank}`}, ${step}`

  it('are those of the algorithm, each sent before it is received', async () => {
    const messages = await messagesOf(4, async (group) => {
      await group.allReduce(new Float32Array(16384), { algorithm: 'ring' })
    })
    const sent = messages.filter(({ kind }) => kind === 'sent')
    // 2 (n - 1) steps, and 2 (n - 1) / n of the bytes
    expect(sent).toHaveLength(4 * 6)
    for (let rank = 0; rank < 4; rank++) {
      const own = sent.filter((message) => message.rank === rank)
      expect(own.reduce((sum, { bytes }) => sum + bytes, 0)).toBe((6 / 4) * 16384 * 4)
      expect(own.map(({ peer, step }) => [peer, step])).toEqual(
        [0, 1, 2, 3, 4, 5].map((step) => [(rank + 1) % 4, step]),
      )
    }
    const places = new Map(sent.map((message) => [idOf(message), messages.indexOf(message)]))
    const received = messages.filter(({ kind }) => kind === 'received')
    expect(received).toHaveLength(sent.length)
    for (const message of received) {
      expect(places.get(idOf(message))).toBeLessThan(messages.indexOf(message))
    }
    expect(messages[0]).toMatchObject({ operation: 'allReduce', algorithm: 'ring', group: 'world' })
  })

  it('include those of send and receive, also from any source', async () => {
    const messages = await messagesOf(2, async (group) => {
      const buffer = new Float32Array(3)
      if (group.rank === 0) await group.send(buffer, 1, { tag: 7 })
      else await group.recv(buffer, 'any', { tag: 7 })
    })
    expect(messages).toMatchObject([
      { kind: 'sent', rank: 0, peer: 1, bytes: 12, operation: 'send', tag: 7, step: 0 },
      { kind: 'received', rank: 1, peer: 0, bytes: 12, operation: 'recv', tag: 7, step: 0 },
    ])
  })
})
