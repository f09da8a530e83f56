import { algorithmsOf, type AlgorithmName } from '@tsrun/training/browser'
import {
  CHUNK_BYTES,
  collectives,
  mergeRecords,
  recordCollective,
  theoryOf,
  timeMessages,
  type CollectiveName,
} from '../../examples/live/collective.ts'
import { breakWorld } from '../../examples/live/faults.ts'
import { idealOf } from '../../examples/live/ideal.ts'
import { fitCosts, pingPong, SIZES, type MessageTime } from '../../examples/live/ping-pong.ts'
import {
  lessons,
  scaleDurations,
  scheduleOf,
  simulationOf,
  type LessonName,
} from '../../examples/live/training.ts'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

const costs = { latency: 0.02, bandwidth: 0.5 }
const names = Object.keys(collectives) as CollectiveName[]

describe('a recorded collective', () => {
  const all = names.flatMap((name) =>
    algorithmsOf(name)
      .filter((algorithm) => algorithm !== 'window' && algorithm !== 'hierarchical')
      .map((algorithm): [CollectiveName, AlgorithmName] => [name, algorithm]),
  )

  /** What a rank has at the end: the sum of 10 ** r over the ranks r that contributed to each chunk. */
  function resultOf(name: CollectiveName, rank: number, size: number): number[] | undefined {
    const own = Array.from({ length: size }, (_, each) => 10 ** each)
    const sum = own.reduce((a, b) => a + b)
    const sums = own.map(() => sum)
    switch (name) {
      case 'allReduce':
        return sums
      case 'reduce':
        return rank === 0 ? sums : undefined
      case 'reduceScatter':
        return own.map((_, chunk) => (chunk === rank ? sum : 10 ** rank))
      case 'allGather':
      case 'allToAll':
        return own
      case 'broadcast':
        return own.map(() => 1)
    }
  }

  it.each(all)('%s by %s ends with the result on 3, 4 and 8 ranks', async (name, algorithm) => {
    for (const ranks of [3, 4, 8]) {
      const { events, contents } = await recordCollective(name, algorithm, ranks)
      expect(contents).toHaveLength(events.length + 1)
      const last = contents.at(-1)!
      const wanted = last.map((chunks, rank) => resultOf(name, rank, ranks) ?? chunks)
      expect(last).toEqual(wanted)
      expect(events.length).toBeGreaterThan(0)
    }
  })

  it.each([
    ['allReduce', 'ring', 4],
    ['allReduce', 'ring', 5],
    ['allReduce', 'recursive-doubling', 4],
    ['allReduce', 'halving-doubling', 8],
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

it('events of ranks whose clocks differ are in the order of cause and effect', async () => {
  const { events } = await recordCollective('allReduce', 'ring', 4)
  const records = [0, 1, 2, 3].map((rank) => {
    const own = events.filter((event) => event.rank === rank)
    // The clock of a rank is slower than that of the next one.
    const timed = own.map((event, index) => ({ ...event, time: index - 100 * rank }))
    return { events: timed, chunks: [[0], ...own.map((_, index) => [index + 1])] }
  })
  const merged = mergeRecords(records)
  expect(merged.events).toHaveLength(events.length)
  for (const [index, { kind, rank, peer, step }] of merged.events.entries()) {
    const sent = merged.events.findIndex(
      (event) =>
        event.kind === 'sent' && event.rank === peer && event.peer === rank && event.step === step,
    )
    expect(kind === 'sent' || sent < index).toBe(true)
  }
  expect(merged.contents.at(-1)).toEqual(records.map(({ events }) => [events.length]))
})

describe('the report of a fault', () => {
  const compared = ['first cause', 'last', 'meaning', 'error', 'others', 'operations', 'exit code']
  const ranks = [0, 1, 2, 3]

  it.each(ranks)('names the rank that was stopped, which is %i', async (rank) => {
    const report = partsOf(await breakWorld('stop', { rank, peer: (rank + 1) % 4 }))
    expect(report['first cause']).toMatch(new RegExp(`^rank ${rank} of 4 was killed by SIGKILL, `))
    expect(report['meaning']).not.toContain('counted')
    expect(report['exit code']).toBe('137')
  })

  it.each(ranks)('names the rank that sent a wrong byte, which is %i', async (rank) => {
    const report = partsOf(await breakWorld('corrupt', { rank, peer: (rank + 1) % 4 }))
    expect(report['first cause']).toMatch(new RegExp(`^rank ${rank} of 4 lost its connection to `))
    expect(report['error']).toContain('it sent bytes that are no frame')
  })

  const links = ranks.flatMap((rank) =>
    ranks.filter((peer) => peer !== rank).map((peer): [number, number] => [rank, peer]),
  )

  it.each(links)('names both ends of the link that was cut: %i to %i', async (rank, peer) => {
    const report = partsOf(await breakWorld('cut', { rank, peer }))
    const [, first, other] = /^rank (\d) of 4 lost its connection to rank (\d), after /.exec(
      report['first cause']!,
    )!
    expect([first, other].map(Number).sort()).toEqual([rank, peer].sort())
    expect(report['error']).toContain(`Rank ${first} is gone`)
    expect(report['exit code']).toBe('1')
  })

  it('names a rank that is busy, and the rank that waited for it', async () => {
    const report = partsOf(await breakWorld('late', { rank: 1, peer: 2 }))
    expect(report['first cause']).toBe(
      'rank 1 of 4 never entered allReduce #3 of group world, in which ranks 0, 2-3 waited N s',
    )
    expect(report['meaning']).toBe('The error below is that of rank 2, which waited.')
  })

  it.each(['late', 'mismatch', 'deadlock'] as const)(
    'is that of tsrun, except for processes, times, paths and how others end: %s',
    async (name) => {
      const [report, { code, stderr }] = await Promise.all([
        breakWorld(name, { rank: 2, peer: 3 }),
        tsrun(['--nproc', '4', '--grace', '1', 'page-faults.ts', name]),
      ])
      const { others, ...rest } = partsOf(report, compared)
      const expected = partsOf(stderr)
      const { operations = '', error = '', ...same } = rest
      expect(same).toEqual(partsOf(stderr, Object.keys(same)))
      // In a mismatch, each rank names the neighbour whose call reached it first.
      expect(error.replace(MET, '')).toBe(expected['error']!.replace(MET, ''))
      // Under tsrun, a rank that calls only after the failure has not run the operation.
      const { operations: theirs = '' } = expected
      expect(theirs.replace(RAN, '')).toBe(operations.replace(RAN, ''))
      const ranks = ranksIn(RAN.exec(operations)?.[0])
      expect(ranks).toEqual(name === 'mismatch' ? [0, 1, 3] : [])
      expect(ranks).toEqual(expect.arrayContaining(ranksIn(RAN.exec(theirs)?.[0])))
      expect(ranksIn(others)).toEqual(ranksIn(expected['others']))
      expect(rest['exit code']).toBe(String(code))
    },
  )
})

/** The ranks that ran the operation of most ranks. */
const RAN = /\branks? [\d, -]+ ran (?=\S+ float32\[4\])/

/** The rank whose call differs from that of the rank that failed. */
const MET = /(?<=\bbut rank )[13](?= runs \S+ float32\[4\])/

/** The parts of a report by their titles, without the times and stacks. */
function partsOf(text: string, titles?: readonly string[]): Readonly<Record<string, string>> {
  const report = text.slice(text.indexOf('── tsrun: the job failed'))
  const parts = new Map<string, string>()
  let title = ''
  for (const line of report.split('\n').slice(1)) {
    const code = /^── exit code (\d+) ─+$/.exec(line)?.[1]
    if (code !== undefined) parts.set('exit code', code)
    if (line.startsWith('──')) break
    const isFrame = /^\s+(at |\(\d+ frames? of libraries)/.test(line)
    if (isFrame) continue
    title = line.slice(0, 13).trim() || title
    parts.set(title, `${parts.get(title) ?? ''} ${line.slice(13)}`.trim())
  }
  const kept = [...parts].filter(([name]) => titles?.includes(name) ?? true)
  return Object.fromEntries(
    kept.map(([name, part]) => [name, part.replaceAll(/\d+\.\d+ s/g, 'N s')]),
  )
}

/** The ranks about which the part `others` says something. */
function ranksIn(others = ''): number[] {
  const lists = Array.from(others.matchAll(/\branks? ([\d, -]+)(?::| ran )/g), ([, list]) => list!)
  return lists
    .flatMap((list) => list.split(', '))
    .flatMap((range) => {
      const [from, to = from] = range.split('-').map(Number)
      return Array.from({ length: to! - from! + 1 }, (_, index) => from! + index)
    })
    .sort()
}

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

describe('the idle share of equal stages with free messages', () => {
  it.each([
    ['naive', 4, 8, 3 / 4, '(S−1)/S'],
    ['gpipe', 4, 8, 3 / 11, '(S−1)/(M+S−1)'],
    ['1f1b', 3, 1, 2 / 3, '(S−1)/(M+S−1)'],
    ['interleaved', 4, 8, 3 / 19, '(S−1)/(2M+S−1)'],
    ['zb-h1', 4, 8, 3 / 27, '(S−1)/(3M+S−1)'],
    // With one micro-batch, no pass of a rank overlaps with one of another rank.
    ['interleaved', 4, 1, 3 / 4, undefined],
    // The halves W of three ranks overlap: 4 forward passes, 4 halves I and one W.
    ['zb-h1', 4, 1, 2 / 3, undefined],
  ] as const)('is right for %s with %i ranks and %i micro-batches', (...row) => {
    const [lesson, ranks, microbatches, bubble, formula] = row
    const ideal = idealOf({ lesson, ranks, microbatches })
    expect(ideal.bubble).toBeCloseTo(bubble, 9)
    expect(ideal.formula).toBe(formula)
  })

  it.each(Object.keys(lessons) as LessonName[])('exists for each setting of %s', (lesson) => {
    for (let ranks = 2; ranks <= 8; ranks++) {
      for (let microbatches = 1; microbatches <= 16; microbatches++) {
        const { bubble } = idealOf({ lesson, ranks, microbatches })
        expect(bubble).toBeGreaterThan(0)
        expect(bubble).toBeLessThan(1)
      }
    }
  })
})
