import { runWorld, type Work } from '@tsrun/distributed'
import { errorOf, thrownBy, turns } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

/** Beyond the eager limit: such messages are announced first. */
const LARGE = 10_000

describe('a receive from any source', () => {
  it.each([0, 1, 5, LARGE])('gets one message from each sender (%i elements)', async (length) => {
    for (let seed = 0; seed < 5; seed++) {
      await runWorld({ size: 5, seed }, async (group) => {
        if (group.rank !== 2) {
          await group.send(new Float32Array(length).fill(group.rank), 2, { tag: 4 })
          return
        }
        const sources: number[] = []
        const buffer = new Float32Array(length)
        for (let i = 0; i < 4; i++) {
          const source = await group.recv(buffer, i % 2 === 0 ? 'any' : null, { tag: 4 })
          expect(buffer.every((value) => value === source)).toBe(true)
          sources.push(source)
        }
        expect(sources.sort()).toEqual([0, 1, 3, 4])
      })
    }
  })

  it('matches messages that arrived before it was called, and later ones', async () => {
    for (const length of [3, LARGE]) {
      const world = new SteppedWorld(3)
      const [a, b, c] = world.groups
      const early = a!.send(new Float32Array(length).fill(1), 1)
      world.drain()
      const buffers = [new Float32Array(length), new Float32Array(length)]
      const receives = buffers.map((buffer) => b!.recv(buffer, 'any'))
      world.drain()
      const late = c!.send(new Float32Array(length).fill(2), 1)
      expect(await world.finish<unknown>([...receives, early, late])).toMatchObject([0, 2])
      expect(buffers.map((buffer) => buffer[length - 1])).toEqual([1, 2])
    }
  })

  it('matches before receives that are called later', async () => {
    for (const length of [3, LARGE]) {
      const world = new SteppedWorld(2)
      const [a, b] = world.groups
      const buffers = Array.from({ length: 4 }, () => new Float32Array(length))
      const receives = buffers.map((buffer, i) => b!.recv(buffer, i % 2 === 0 ? 'any' : 0))
      const sends = buffers.map((_, i) => a!.send(new Float32Array(length).fill(i), 1))
      await world.finish<unknown>([...receives, ...sends])
      expect(buffers.map((buffer) => buffer[0])).toEqual([0, 1, 2, 3])
    }
  })

  it('matches only its own tag and group', async () => {
    await runWorld({ size: 3, seed: 2 }, async (group) => {
      const other = await group.newGroup([2, 1, 0])
      const buffer = new Int32Array(1)
      if (group.rank === 0) {
        await group.send(Int32Array.of(1), 1, { tag: 1 })
        await other.send(Int32Array.of(2), 1)
      } else if (group.rank === 2) {
        await group.send(Int32Array.of(3), 1)
      } else {
        expect(await group.recv(buffer, 'any')).toBe(2)
        expect(buffer[0]).toBe(3)
        // rank 0 of the world is the last of the other group
        expect(await other.recv(buffer, 'any')).toBe(2)
        expect(buffer[0]).toBe(2)
        expect(await group.recv(buffer, 'any', { tag: 1 })).toBe(0)
      }
    })
  })

  it('consumes no message if it times out or is aborted, and later receives still match', async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const controller = new AbortController()
    const buffers = [new Int32Array(1), new Int32Array(1)]
    const given = b!.recv(buffers[0]!, 'any', { signal: controller.signal })
    const behind = b!.recv(buffers[1]!, 0)
    controller.abort()
    await expect(given).rejects.toMatchObject({
      code: 'ERR_TSR_OPERATION_ABORTED',
      message: expect.stringContaining('any rank'),
    })
    await world.finish<unknown>([behind, a!.send(Int32Array.of(8), 1)])
    expect(buffers[1]![0]).toBe(8)
    const late = b!.recv(buffers[0]!, 'any', { timeout: 20 })
    const ended = errorOf(() => late)
    while (!late.isCompleted()) {
      world.ranks[1]!.engine.checkDeadlines()
      await turns(1)
    }
    expect(await ended).toMatchObject({
      code: 'ERR_TSR_OPERATION_TIMEOUT',
      message: expect.stringContaining('waiting for rank 0'),
    })
  })

  it('fails if length or dtype differ, and names both sides', async () => {
    const errors = await runWorld({ size: 3, seed: 4 }, async (group) =>
      group.rank === 0
        ? await errorOf(() => group.recv(new Float32Array(2), 'any'))
        : group.rank === 1
          ? await errorOf(() => group.send(new Float32Array(3), 0))
          : undefined,
    )
    expect(errors[0]).toMatchObject({
      code: 'ERR_TSR_MISMATCH',
      message: expect.stringMatching(/float32\[2\] but rank 1 runs send\/recv float32\[3\]/),
    })
  })

  it('fails when all ranks that it could receive from have left', async () => {
    const world = new SteppedWorld(3)
    const [a, b, c] = world.groups
    const receive = b!.recv(new Int32Array(1), 'any')
    const failed = errorOf(() => receive)
    await a!.destroy()
    world.drain()
    await turns(2)
    expect(receive.isCompleted()).toBe(false)
    await c!.destroy()
    world.drain()
    expect(await failed).toMatchObject({ code: 'ERR_TSR_PEER_LEFT' })
    await expect(b!.recv(new Int32Array(1), 'any')).rejects.toMatchObject({
      code: 'ERR_TSR_PEER_LEFT',
    })
  })

  it('is refused in a group of one rank', async () => {
    const [error] = await runWorld({ size: 1 }, async (group) => {
      await Promise.resolve()
      return thrownBy(() => group.recv(new Int32Array(1), 'any'))
    })
    expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name: 'from' } })
  })

  it('returns objects with their sources, in the order of each sender', async () => {
    for (let seed = 0; seed < 10; seed++) {
      await runWorld({ size: 3, seed }, async (group) => {
        if (group.rank > 0) {
          for (let i = 0; i < 3; i++) await group.sendObject({ from: group.rank, i }, 0)
          return
        }
        const works: Work<unknown>[] = []
        for (let i = 0; i < 4; i++) works.push(group.recvObject('any'))
        const seen = (await Promise.all(works)) as {
          value: { from: number; i: number }
          source: number
        }[]
        const next = [0, 0, 0]
        for (const { value, source } of seen) {
          expect(value).toEqual({ from: source, i: next[source]!++ })
        }
        for (const source of [1, 2]) {
          while (next[source]! < 3) {
            expect(await group.recvObject(source)).toEqual({ from: source, i: next[source]!++ })
          }
        }
      })
    }
  })
})
