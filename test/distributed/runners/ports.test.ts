import { connectPorts, joinPorts, type ProcessGroup } from '@tsrun/distributed/browser'
import { errorOf, thrownBy } from '../support/outcome.ts'

/** Ranks with ports between them. In a page they are in workers; ports work the same in one thread. */
function join(size: number, timeout = 20_000): ProcessGroup[] {
  return connectPorts(size).map((ports, rank) =>
    joinPorts({ rank, ports, timeout, memory: 16 << 20 }),
  )
}

async function leave(groups: readonly ProcessGroup[]): Promise<void> {
  await Promise.all(groups.map((group) => group.destroy()))
}

describe('joinPorts', () => {
  it('reduces and gathers over three ranks, with buffers of any size', async () => {
    const groups = join(3)
    const results = await Promise.all(
      groups.map(async (group) => {
        const large = group.alloc('float32', 700_000).fill(group.rank + 1)
        await group.allReduce(large)
        const objects = await group.allGatherObject({ rank: group.rank })
        return [large[0], large.at(-1), objects]
      }),
    )
    const objects = [{ rank: 0 }, { rank: 1 }, { rank: 2 }]
    expect(results).toEqual(groups.map(() => [6, 6, objects]))
    await leave(groups)
  })

  it('reports mismatched calls on all ranks', async () => {
    const groups = join(2)
    const errors = await Promise.all(
      groups.map((group) => errorOf(() => group.allReduce(new Float32Array(2 + group.rank)))),
    )
    expect(errors.map((error) => error?.code)).toEqual(['ERR_TSR_MISMATCH', 'ERR_TSR_MISMATCH'])
    await leave(groups)
  })

  it('names the rank that a receive waits for', async () => {
    const groups = join(2, 100)
    const error = await errorOf(() => groups[0]!.recv(new Float32Array(1), 1))
    expect(error?.code).toBe('ERR_TSR_OPERATION_TIMEOUT')
    expect(error?.message).toContain('waiting for rank 1')
    await leave(groups)
  })

  it('tells a rank that another one has left', async () => {
    const groups = join(2)
    await groups[1]!.destroy()
    const error = await errorOf(() => groups[0]!.barrier())
    expect(error?.code).toBe('ERR_TSR_PEER_LEFT')
    await groups[0]!.destroy()
  })

  it('refuses synchronous calls, new groups and missing ports', async () => {
    const groups = join(2)
    expect(
      thrownBy(() => {
        groups[0]!.barrierSync()
      }),
    ).toMatchObject({ code: 'ERR_TSR_SYNC_UNSUPPORTED' })
    const errors = await Promise.all(groups.map((group) => errorOf(() => group.split(0))))
    for (const error of errors) expect(error?.message).toContain('one that joinPorts made')
    expect(
      thrownBy(() => {
        joinPorts({ rank: 1, ports: connectPorts(2)[0]! })
      }),
    ).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
    await leave(groups)
  })
})
