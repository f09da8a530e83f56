import { isTsrError } from '@tsrun/core'
import { runWorld, type ProcessGroup, type WorldFault } from '@tsrun/distributed'

/** Adds until something fails, or ten times; says how often that went well, and the code of the error. */
async function add(group: ProcessGroup): Promise<string> {
  for (let step = 0; step < 10; step++) {
    const buffer = new Float32Array(5000).fill(1)
    try {
      await group.allReduce(buffer)
    } catch (error) {
      if (!isTsrError(error)) throw error
      return `${step} ${error.code}`
    }
    if (!buffer.every((value) => value === group.size)) return `${step} wrong`
  }
  return 'all'
}

async function suffer(fault: Omit<WorldFault, 'rank'>, seed = 1): Promise<string[]> {
  return await runWorld({ size: 3, seed, faults: [{ rank: 1, ...fault }] }, add)
}

describe('faults in an in-process world', () => {
  it.each(['pause', 'slow'] as const)('only delay the result: %s', async (kind) => {
    expect(await suffer({ kind, round: 5, rounds: 200 })).toEqual(['all', 'all', 'all'])
  })

  it('of the kind "lose" fail the operations of the lost rank and of its peers', async () => {
    const [first, lost, last] = await suffer({ kind: 'lose', round: 30 })
    expect(lost).toMatch(/^\d ERR_TSR_OPERATION_ABORTED$/)
    for (const end of [first, last]) {
      expect(end).toMatch(/^\d ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED)$/)
    }
  })

  it.each(['half-close', 'corrupt'] as const)(
    'are noticed by the other ranks: %s',
    async (kind) => {
      const ends = await suffer({ kind, round: 1 })
      expect(ends.join()).toMatch(/ERR_TSR_PEER_LOST/)
      expect(ends).not.toContain('all')
    },
  )

  it('of the kind "half-close" with a peer close only the connection to that rank', async () => {
    const ends = await runWorld(
      { size: 3, faults: [{ kind: 'half-close', rank: 0, peer: 2, round: 1 }] },
      async (group) => {
        const buffer = Float32Array.of(group.rank)
        if (group.rank === 2) return 'no message'
        await (group.rank === 0 ? group.send(buffer, 1) : group.recv(buffer, 0))
        return String(buffer[0])
      },
    )
    expect(ends).toEqual(['0', '0', 'no message'])
    const [first, , last] = await suffer({ kind: 'half-close', peer: 2, round: 1 })
    expect(`${first} ${last}`).toMatch(/ERR_TSR_PEER_LOST/)
  })

  it('are injected at any time by the function that `faults` is given', async () => {
    let inject: ((fault: WorldFault) => void) | undefined
    const faults = (given: typeof inject): void => {
      inject = given
    }
    const ends = await runWorld({ size: 3, faults }, async (group) => {
      if (group.rank === 0) {
        await group.barrier()
        inject?.({ kind: 'lose', rank: 2 })
      } else await group.barrier()
      return await add(group)
    })
    expect(ends[2]).toMatch(/^\d ERR_TSR_OPERATION_ABORTED$/)
    expect(ends[0]).toMatch(/^\d ERR_TSR_(PEER|GROUP)_/)
  })

  it('occur at a moment that the seed determines', async () => {
    const run = async (seed: number): Promise<string> =>
      (await suffer({ kind: 'lose', round: 40 }, seed)).join()
    const seeds = [1, 2, 3, 4, 5, 6]
    const ends = await Promise.all(seeds.map(run))
    expect(await Promise.all(seeds.map(run))).toEqual(ends)
    expect(new Set(ends).size).toBeGreaterThan(1)
  })

  it('are refused for ranks that do not exist', async () => {
    const faults = [{ kind: 'lose', rank: 3, round: 1 }] as const
    await expect(runWorld({ size: 3, faults }, add)).rejects.toThrow('a rank below 3')
    const own = [{ kind: 'half-close', rank: 1, peer: 1 }] as const
    await expect(runWorld({ size: 3, faults: own }, add)).rejects.toThrow('another rank below 3')
    const unknown = [{ kind: 'loose', rank: 0, round: 1 }] as unknown as WorldFault[]
    await expect(runWorld({ size: 3, faults: unknown }, add)).rejects.toThrow('loose')
  })
})
