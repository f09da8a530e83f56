import type { FlightDump, FlightEntry, FlightGroup } from '@tsrun/distributed/record'
import { describeFinding, mergeFlight, tailOfFlight } from '../../../internals/launcher/report.ts'
import { dumpOf, done } from '../../../distributed/record/dumps.ts'

const found = (dumps: readonly FlightDump[]): string[] => mergeFlight(dumps).map(describeFinding)

it('finds nothing if all ranks have ended all operations', () => {
  expect(found([0, 1].map((rank) => dumpOf(rank, 2, done(5))))).toEqual([])
})

it('names the rank that never entered an operation, its last operation and the waiting ranks', () => {
  const label = 'ddp bucket 3: layer4.weight'
  const waiting = { sequence: 17, state: 'running', label } as const
  const dumps = [0, 1, 3].map((rank) => dumpOf(rank, 4, [...done(17), waiting]))
  expect(found([...dumps, dumpOf(2, 4, done(17))])).toEqual([
    'rank 2 never entered allReduce #17 (ddp bucket 3: layer4.weight) of group world; ' +
      'last op allReduce(sum) float32[4] #16; waiting for it: 0-1, 3',
  ])
})

it('says in which other operation the missing rank is', () => {
  const receive = {
    ...{ name: 'recv', operation: 'send/recv float32[8]', peer: 0, tag: 7, sequence: 0 },
    state: 'running',
  } as const
  const dumps = [
    dumpOf(0, 2, [...done(2), { sequence: 2, state: 'failed' }]),
    dumpOf(1, 2, [...done(2), receive]),
  ]
  expect(found(dumps)[0]).toContain('now in recv float32[8] from rank 0, tag 7; waiting for it: 0')
})

it('counts a refused operation as not entered', () => {
  const dumps = [
    dumpOf(0, 2, [...done(2), { sequence: 2, state: 'failed' }]),
    dumpOf(1, 2, [...done(2), { sequence: 2, state: 'refused' }]),
  ]
  expect(found(dumps)).toEqual([
    'rank 1 never entered allReduce #2 of group world; it came only after the group had failed; waiting for it: 0',
  ])
})

it('compares records of many operations in linear time', () => {
  const receive = {
    name: 'recv',
    operation: 'send/recv float32[8]',
    peer: 1,
    tag: 7,
    state: 'failed',
    error: 'ERR_TSR_OPERATION_TIMEOUT',
  } as const
  const receives = Array.from({ length: 150_000 }, (_, sequence) => ({ ...receive, sequence }))
  expect(found([dumpOf(0, 2, receives), dumpOf(1, 2, done(20_000))])).toHaveLength(150_000)
})

it('names ranks that left no flight record', () => {
  const dumps = [0, 1].map((rank) =>
    dumpOf(rank, 3, [...done(1), { sequence: 1, state: 'failed' }]),
  )
  expect(found(dumps)).toEqual([
    'rank 2 left no record, so it is unknown whether it entered allReduce #1 of group world; waiting for it: 0-1',
  ])
})

it('finds different operations at the same sequence number, and shows the call sites', () => {
  const odd = {
    operation: 'broadcast(root 0) float32[4]',
    name: 'broadcast',
    state: 'failed',
  } as const
  const dumps = [
    dumpOf(0, 3, [...done(1), { sequence: 1, state: 'failed', site: 'a.ts:3:1' }]),
    dumpOf(1, 3, [...done(1), { sequence: 1, ...odd, site: 'b.ts:9:2' }]),
    dumpOf(2, 3, [...done(1), { sequence: 1, state: 'failed', site: 'a.ts:3:1' }]),
  ]
  expect(found(dumps)).toEqual([
    'mismatch at #1 of group world: ranks 0, 2 ran allReduce(sum) float32[4] called at a.ts:3:1; ' +
      'rank 1 ran broadcast(root 0) float32[4] called at b.ts:9:2',
  ])
})

it('names a receive that waits, and the last operation of its peer', () => {
  const receive = {
    ...{ name: 'recv', operation: 'send/recv int32[1]', peer: 1, tag: 0, sequence: 0 },
    state: 'failed',
    error: 'ERR_TSR_OPERATION_TIMEOUT',
  } as const
  expect(found([dumpOf(0, 2, [receive]), dumpOf(1, 2, [])])).toEqual([
    'rank 0 waits in recv int32[1] from rank 1, tag 0 of group world; rank 1: no op of group world so far',
  ])
})

it('ignores messages that failed for reasons other than a time-out', () => {
  const receive = {
    ...{ name: 'recv', operation: 'send/recv int32[1]', peer: 1, tag: 0, sequence: 0 },
    state: 'failed',
    error: 'ERR_TSR_PEER_LOST',
  } as const
  expect(found([dumpOf(0, 2, [receive]), dumpOf(1, 2, [])])).toEqual([])
})

it.each([
  ['before', 900, 2],
  ['after', 1100, 1],
])(
  'finds messages that failed with a rank whose receive timed out, if they were called %s the time-out',
  (_, posted, count) => {
    const receive = (peer: number, error: string, at: number): Partial<FlightEntry> => ({
      ...{ name: 'recv', operation: 'send/recv int32[1]', peer, tag: 0, sequence: 0 },
      ...{ error, posted: at, completed: 1000 },
      state: 'failed',
    })
    const dumps = [
      dumpOf(0, 2, [receive(1, 'ERR_TSR_OPERATION_TIMEOUT', 0)]),
      dumpOf(1, 2, [receive(0, 'ERR_TSR_PEER_LOST', posted)]),
    ]
    expect(found(dumps)).toHaveLength(count)
  },
)

it('says that all ranks had entered a failed operation', () => {
  const dumps = [0, 1].map((rank) =>
    dumpOf(rank, 2, [
      { sequence: 0, state: 'failed', error: 'ERR_TSR_PEER_LOST', waitsFor: [1 - rank] },
    ]),
  )
  expect(found(dumps)).toEqual([
    'allReduce #0 of group world failed (ERR_TSR_PEER_LOST) on ranks 0-1, waiting for messages of ranks 0-1; all ranks had entered it',
  ])
})

it('compares the operations of each group separately', () => {
  const groups = [
    { id: 1, name: 'dp', ranks: [0, 2] },
    { id: 2, name: 'tp', ranks: [0, 1] },
  ]
  const dumps = [
    dumpOf(0, 3, [...done(3, { group: 1 }), { group: 2, sequence: 0, state: 'running' }], groups),
    dumpOf(1, 3, [], groups),
    dumpOf(2, 3, done(3, { group: 1 }), groups),
  ]
  expect(found(dumps)).toEqual([
    'rank 1 never entered allReduce #0 of group tp; no op of group tp so far; waiting for it: 0',
  ])
})

it('compares records whose ring buffers begin at different operations', () => {
  const late = done(20).slice(12)
  expect(found([dumpOf(0, 2, done(20)), dumpOf(1, 2, late)])).toEqual([])
})

describe('the tail of a dump', () => {
  const far: FlightGroup = { id: 7, name: 'pipe', ranks: [0, 1] }
  const idle: FlightGroup = { id: 8, name: 'data', ranks: [0, 1] }
  const world: FlightGroup = { id: 0, name: 'world', ranks: [0, 1] }
  const early = { group: 7, sequence: 0, operation: 'barrier' }
  const waiting = { name: 'recv', operation: 'send/recv', peer: 1, state: 'running' } as const

  it('has the last operations, the running operations and the last collective of each group', () => {
    const dump = dumpOf(0, 2, [early, waiting, ...done(100)], [world, far, idle])
    const { header, entries } = tailOfFlight(dump, 10)
    expect(entries.map(({ number }) => number)).toEqual([1, 2, ...range(93, 102)])
    expect(header.groups).toEqual([world, far])
  })

  it('does not call a rank missing whose entry has been overwritten', () => {
    const entries = [early, ...done(100)]
    const both = [0, 1].map((rank) => dumpOf(rank, 2, entries, [world, far]))
    const behind = dumpOf(1, 2, [{ ...early, state: 'running' }], [world, far])
    expect(mergeFlight(both.map((dump) => tailOfFlight(dump, 10)))).toEqual([])
    const found = mergeFlight([both[0]!, behind].map((dump) => tailOfFlight(dump, 10)))
    expect(found.filter(({ kind }) => kind === 'missing')).toEqual([])
  })
})

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i)
}
