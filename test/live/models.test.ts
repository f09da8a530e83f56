import { algorithmsOf, type AlgorithmName } from '@tsrun/training/browser'
import {
  CHUNK_BYTES,
  collectives,
  recordCollective,
  theoryOf,
  timeMessages,
  type CollectiveName,
} from '../../examples/live/collective.ts'
import { breakWorld, faults, type FaultName } from '../../examples/live/faults.ts'
import { fitCosts, pingPong, SIZES, type MessageTime } from '../../examples/live/ping-pong.ts'
import { scaleDurations, scheduleOf, simulationOf } from '../../examples/live/training.ts'

const costs = { latency: 0.02, bandwidth: 0.5 }
const names = Object.keys(collectives) as CollectiveName[]

describe('a recorded collective', () => {
  const all = names.flatMap((name) =>
    algorithmsOf(name)
      .filter((algorithm) => algorithm !== 'window' && algorithm !== 'hierarchical')
      .map((algorithm): [CollectiveName, AlgorithmName] => [name, algorithm]),
  )

  /** What a rank has at the end: the sum of 10 ** r over the ranks r that contributed to each chunk. */
  const results: Readonly<Record<CollectiveName, (rank: number) => number[] | undefined>> = {
    allReduce: () => [1111, 1111, 1111, 1111],
    reduce: (rank) => (rank === 0 ? [1111, 1111, 1111, 1111] : undefined),
    reduceScatter: (rank) => [0, 1, 2, 3].map((chunk) => (chunk === rank ? 1111 : 10 ** rank)),
    allGather: () => [1, 10, 100, 1000],
    allToAll: () => [1, 10, 100, 1000],
    broadcast: () => [1, 1, 1, 1],
  }

  it.each(all)('%s by %s ends with the result', async (name, algorithm) => {
    const { events, contents } = await recordCollective(name, algorithm, 4)
    expect(contents).toHaveLength(events.length + 1)
    const last = contents.at(-1)!
    const wanted = last.map((chunks, rank) => results[name](rank) ?? chunks)
    expect(last).toEqual(wanted)
    expect(events.length).toBeGreaterThan(0)
  })

  it.each([
    ['allReduce', 'ring', 4],
    ['allReduce', 'ring', 5],
    ['allReduce', 'recursive-doubling', 4],
    ['allReduce', 'halving-doubling', 8],
    ['reduceScatter', 'pairwise', 4],
    ['allGather', 'ring', 6],
    ['allToAll', 'pairwise', 4],
    ['broadcast', 'binomial-tree', 8],
    ['reduce', 'binomial-tree', 4],
  ] as const)(
    '%s by %s takes as long as theory says on %i ranks',
    async (name, algorithm, ranks) => {
      const recorded = await recordCollective(name, algorithm, ranks)
      const time = Math.max(...timeMessages(recorded, costs).map(({ arrival }) => arrival))
      const theory = theoryOf(name, algorithm, ranks, ranks * CHUNK_BYTES, costs)!
      expect(time).toBeCloseTo(theory.time, 6)
    },
  )
})

describe('a world that breaks', () => {
  const first: Readonly<Record<FaultName, { rank?: number; code: string }>> = {
    stop: { rank: 2, code: 'ERR_TSR_GROUP_DESTROYED' },
    cut: { code: 'ERR_TSR_PEER_LOST' },
    corrupt: { code: 'ERR_TSR_PEER_LOST' },
    mismatch: { rank: 2, code: 'ERR_TSR_MISMATCH' },
    deadlock: { code: 'ERR_TSR_DEADLOCK' },
    late: { code: 'ERR_TSR_OPERATION_TIMEOUT' },
  }

  it.each(Object.keys(faults) as FaultName[])('tells the cause of %s first', async (name) => {
    const { errors, completed } = await breakWorld(name)
    expect(errors).toHaveLength(4)
    expect(errors[0]).toMatchObject({
      rank: first[name].rank ?? (expect.any(Number) as number),
      error: { code: first[name].code },
    })
    expect(Math.max(...completed)).toBeGreaterThan(2)
    expect(Math.max(...completed)).toBeLessThan(30)
  })
})

it('ping-pong measures each size, and the figures give the largest time back', async () => {
  const times: MessageTime[] = []
  await pingPong((time) => times.push(time))
  expect(times.map(({ bytes }) => bytes)).toEqual(SIZES)
  const { latency, bandwidth } = fitCosts(times)
  expect(latency).toBeGreaterThan(0)
  const { bytes, milliseconds } = times.at(-1)!
  expect(latency + bytes / bandwidth / 1e6).toBeCloseTo(milliseconds, 6)
})

it('durations for another layout have the same work in a batch', () => {
  const from = { lesson: '1f1b', ranks: 2, microbatches: 4 } as const
  const to = { lesson: 'zb-h1', ranks: 4, microbatches: 8 } as const
  const measured = { F: [1, 3], B: [2, 4], I: [0, 0], W: [0, 0] }
  const scaled = scaleDurations(measured, from, to)
  const free = { latency: 0, bandwidth: Infinity }
  const busy = (layout: typeof from | typeof to, durations: typeof scaled): number =>
    scheduleOf(layout)
      .simulate(simulationOf(layout, durations, free))
      .ranks.reduce((sum, rank) => sum + rank.busy, 0)
  expect(busy(to, scaled)).toBeCloseTo(busy(from, measured), 9)
  expect(scaled.F).toEqual([0.5, 0.5, 0.5, 0.5])
})
