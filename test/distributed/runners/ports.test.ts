import {
  connectPorts,
  joinPorts,
  type MessageEvent,
  type ProcessGroup,
} from '@tsrun/distributed/browser'
import { errorOf, thrownBy } from '../support/outcome.ts'

const joined: ProcessGroup[] = []

/** Ranks with ports between them. In a page they are in workers; ports work the same in one thread. */
function join(size: number, timeout = 20_000): ProcessGroup[] {
  const groups = connectPorts(size).map((ports, rank) =>
    joinPorts({ rank, ports, timeout, memory: 16 << 20 }),
  )
  joined.push(...groups)
  return groups
}

afterEach(async () => {
  await Promise.all(joined.splice(0).map((group) => group.destroy()))
})

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
  })

  it('tells a rank the messages that it sends and receives', async () => {
    const events: MessageEvent[] = []
    const groups = connectPorts(2).map((ports, rank) =>
      joinPorts({ rank, ports, memory: 16 << 20, onMessage: (event) => events.push(event) }),
    )
    joined.push(...groups)
    await Promise.all(
      groups.map((group) => {
        const buffer = new Float32Array(4)
        return group.rank === 0 ? group.send(buffer, 1) : group.recv(buffer, 0)
      }),
    )
    expect(events).toEqual([
      expect.objectContaining({ kind: 'sent', rank: 0, peer: 1, bytes: 16 }),
      expect.objectContaining({ kind: 'received', rank: 1, peer: 0, bytes: 16 }),
    ])
  })

  it('reports mismatched calls on all ranks', async () => {
    const errors = await Promise.all(
      join(2).map((group) => errorOf(() => group.allReduce(new Float32Array(2 + group.rank)))),
    )
    expect(errors.map((error) => error?.code)).toEqual(['ERR_TSR_MISMATCH', 'ERR_TSR_MISMATCH'])
  })

  it('names the rank that a receive waits for', async () => {
    const [group] = join(2, 100)
    const error = await errorOf(() => group!.recv(new Float32Array(1), 1))
    expect(error?.code).toBe('ERR_TSR_OPERATION_TIMEOUT')
    expect(error?.message).toContain('waiting for rank 1')
  })

  it('tells a rank that another one has left', async () => {
    const [group, other] = join(2)
    await other!.destroy()
    const error = await errorOf(() => group!.barrier())
    expect(error?.code).toBe('ERR_TSR_PEER_LEFT')
  })

  it('refuses new groups, because the ranks share no store', async () => {
    const errors = await Promise.all(join(2).map((group) => errorOf(() => group.split(0))))
    for (const error of errors) expect(error?.message).toContain('one that joinPorts made')
  })

  it('refuses synchronous calls and missing ports', () => {
    const [group] = join(2)
    expect(
      thrownBy(() => {
        group!.barrierSync()
      }),
    ).toMatchObject({ code: 'ERR_TSR_SYNC_UNSUPPORTED' })
    expect(
      thrownBy(() => {
        joinPorts({ rank: 1, ports: [{} as never, undefined, undefined] })
      }),
    ).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
  })
})
