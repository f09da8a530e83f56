import { readFileSync } from 'node:fs'
import { formatActions, schedule, type ScheduleName } from '@tsrun/training/planning'

interface Golden {
  readonly name: ScheduleName
  readonly stages: number
  readonly microbatches: number
  readonly makespan: number
  readonly bubble: number
  readonly peak: number[]
}

/** Forward 1, backward 2, messages free: the values that the papers' formulas give. */
const table: Golden[] = [
  { name: 'naive', stages: 4, microbatches: 8, makespan: 96, bubble: 0.75, peak: [1, 1, 1, 1] },
  { name: 'gpipe', stages: 4, microbatches: 8, makespan: 33, bubble: 0.2727, peak: [8, 8, 8, 8] },
  { name: '1f1b', stages: 4, microbatches: 8, makespan: 33, bubble: 0.2727, peak: [4, 3, 2, 1] },
  {
    name: 'gpipe',
    stages: 4,
    microbatches: 16,
    makespan: 57,
    bubble: 0.1579,
    peak: [16, 16, 16, 16],
  },
  { name: '1f1b', stages: 4, microbatches: 16, makespan: 57, bubble: 0.1579, peak: [4, 3, 2, 1] },
  {
    name: '1f1b',
    stages: 8,
    microbatches: 8,
    makespan: 45,
    bubble: 0.4667,
    peak: [8, 7, 6, 5, 4, 3, 2, 1],
  },
  {
    name: 'gpipe',
    stages: 8,
    microbatches: 8,
    makespan: 45,
    bubble: 0.4667,
    peak: Array<number>(8).fill(8),
  },
  { name: 'gpipe', stages: 4, microbatches: 2, makespan: 15, bubble: 0.6, peak: [2, 2, 2, 2] },
  { name: '1f1b', stages: 4, microbatches: 2, makespan: 15, bubble: 0.6, peak: [2, 2, 2, 1] },
  { name: 'naive', stages: 4, microbatches: 1, makespan: 12, bubble: 0.75, peak: [1, 1, 1, 1] },
  { name: 'gpipe', stages: 4, microbatches: 1, makespan: 12, bubble: 0.75, peak: [1, 1, 1, 1] },
  { name: '1f1b', stages: 4, microbatches: 1, makespan: 12, bubble: 0.75, peak: [1, 1, 1, 1] },
  { name: 'gpipe', stages: 3, microbatches: 5, makespan: 21, bubble: 0.2857, peak: [5, 5, 5] },
  { name: '1f1b', stages: 3, microbatches: 5, makespan: 21, bubble: 0.2857, peak: [3, 2, 1] },
  { name: 'naive', stages: 1, microbatches: 4, makespan: 12, bubble: 0, peak: [1] },
  { name: 'gpipe', stages: 1, microbatches: 4, makespan: 12, bubble: 0, peak: [4] },
  { name: '1f1b', stages: 1, microbatches: 4, makespan: 12, bubble: 0, peak: [1] },
]

/** Forward, gradient of the input and gradients of the weights 1 each. */
const halved = [
  { stages: 4, microbatches: 8, makespan: 27, peak: 4 },
  { stages: 8, microbatches: 8, makespan: 31, peak: 8 },
  { stages: 4, microbatches: 16, makespan: 51, peak: 4 },
  { stages: 4, microbatches: 2, makespan: 11, peak: 2 },
  { stages: 1, microbatches: 4, makespan: 12, peak: 1 },
]

describe('the schedule zb-h1', () => {
  it.each(halved)(
    'has makespan $makespan and peak $peak: $stages stages, $microbatches micro-batches',
    ({ stages, microbatches, makespan, peak }) => {
      const made = schedule('zb-h1', { stages, microbatches })
      made.validate()
      const simulation = made.simulate({ forward: 1, backward: 2 })
      expect(simulation.makespan).toBe(makespan)
      expect(simulation.ranks.map((rank) => rank.peakInFlight)).toEqual(
        Array.from({ length: stages }, () => peak),
      )
    },
  )
})

interface TorchOrder {
  readonly name: ScheduleName
  readonly ranks: number
  readonly chunks: number
  readonly microbatches: number
  readonly actions: readonly string[]
}

describe('an action list of PyTorch', () => {
  const file = new URL('golden-torch.json', import.meta.url)
  const { schedules } = JSON.parse(readFileSync(file, 'utf8')) as { schedules: TorchOrder[] }

  it.each(schedules)(
    'equals the list of tsrun: $name, $ranks ranks, $chunks stages each, $microbatches micro-batches',
    ({ name, ranks, chunks, microbatches, actions }) => {
      const made = schedule(name, { stages: ranks * chunks, ranks, microbatches })
      expect(formatActions(made.actions).split('\n')).toEqual(actions)
      made.validate()
    },
  )
})

/** Each pass and each half through a stage takes 1. */
const inV = [
  { name: 'zb-v', ranks: 4, microbatches: 8, makespan: 51, peak: [8, 8, 8, 8] },
  { name: 'zb-v', ranks: 4, microbatches: 16, makespan: 99, peak: [8, 8, 8, 8] },
  { name: 'dualpipe-v', ranks: 4, microbatches: 8, makespan: 51, peak: [9, 9, 9, 9] },
] as const

describe('a schedule with two stages per rank in a V', () => {
  it.each(inV)(
    'has the expected makespan: $name, $ranks ranks, $microbatches micro-batches, makespan $makespan',
    ({ name, ranks, microbatches, makespan, peak }) => {
      const made = schedule(name, { stages: 2 * ranks, microbatches })
      const simulation = made.simulate({ forward: 1, backward: 2 })
      expect(simulation.makespan).toBe(makespan)
      expect(simulation.ranks.map((rank) => rank.peakInFlight)).toEqual(peak)
      expect(made.placement).toEqual([0, 1, 2, 3, 3, 2, 1, 0])
    },
  )

  it.each(['zb-v', 'dualpipe-v'] as const)('never deadlocks, at any size: %s', (name) => {
    for (let ranks = 1; ranks <= 6; ranks++) {
      for (let microbatches = 1; microbatches <= 15; microbatches++) {
        schedule(name, { stages: 2 * ranks, ranks, microbatches }).validate()
      }
    }
  })

  it('is refused if the number of stages is not two per rank', () => {
    const given = { stages: 7, microbatches: 2 }
    expect(() => schedule('zb-v', given)).toThrow('stages is 7; expected 8, two per rank')
    expect(() => schedule('zb-v', { ...given, ranks: 4 })).toThrow('8, two per rank')
  })
})

describe('the looped schedule', () => {
  it.each([
    { chunks: 1, microbatches: 8, makespan: 33 },
    { chunks: 2, microbatches: 8, makespan: 28.5 },
    { chunks: 2, microbatches: 6, makespan: 22.5 },
    { chunks: 4, microbatches: 8, makespan: 26.25 },
  ])('on four ranks has makespan $makespan: $chunks chunks, $microbatches micro-batches', (row) => {
    const { chunks, microbatches, makespan } = row
    const made = schedule('looped', { stages: 4 * chunks, ranks: 4, microbatches })
    made.validate()
    const simulation = made.simulate({ forward: 1 / chunks, backward: 2 / chunks })
    expect(simulation.makespan).toBeCloseTo(makespan, 9)
    expect(simulation.bubble).toBeCloseTo(3 / (chunks * microbatches + 3), 9)
    expect(simulation.ranks.map((rank) => rank.peakInFlight)).toEqual(
      Array<number>(4).fill(chunks * microbatches),
    )
  })
})

/** Of forwards and backwards of a whole rank, 1 and 2; a chunk takes its part of that. */
const dealt = [
  { chunks: 1, microbatches: 8, makespan: 33, bubble: 0.2727, peak: [7, 5, 3, 1] },
  { chunks: 2, microbatches: 8, makespan: 28.5, bubble: 0.1579, peak: [11, 9, 7, 5] },
  { chunks: 4, microbatches: 8, makespan: 26.25, bubble: 0.0857, peak: [19, 17, 15, 13] },
]

describe('the interleaved schedule', () => {
  it.each(dealt)(
    'on four ranks has makespan $makespan and bubble $bubble: $chunks chunks, $microbatches micro-batches',
    ({ chunks, microbatches, makespan, bubble, peak }) => {
      const made = schedule('interleaved', { stages: 4 * chunks, ranks: 4, microbatches })
      made.validate()
      const simulation = made.simulate({ forward: 1 / chunks, backward: 2 / chunks })
      expect(simulation.makespan).toBeCloseTo(makespan, 9)
      expect(simulation.bubble).toBeCloseTo(bubble, 4)
      expect(simulation.ranks.map((rank) => rank.peakInFlight)).toEqual(peak)
    },
  )

  it('never deadlocks, at any size', () => {
    for (let ranks = 1; ranks <= 5; ranks++) {
      for (let chunks = 1; chunks <= 4; chunks++) {
        for (let microbatches = 1; microbatches <= 13; microbatches++) {
          const size = { stages: ranks * chunks, ranks, microbatches }
          schedule('interleaved', size).validate()
          schedule('interleaved-zb', size).validate()
        }
      }
    }
  })

  it('needs the same number of stages on every rank, and 1f1b needs exactly one', () => {
    const stages = { stages: 6, ranks: 4, microbatches: 2 }
    expect(() => schedule('interleaved', stages)).toThrow('a multiple of the 4 ranks')
    expect(() => schedule('1f1b', stages)).toThrow('one per rank')
  })
})

describe('the simulator', () => {
  it.each(table)(
    'finds makespan $makespan and bubble $bubble: $name, $stages stages, $microbatches micro-batches',
    ({ name, stages, microbatches, makespan, bubble, peak }) => {
      const made = schedule(name, { stages, microbatches })
      made.validate()
      const simulation = made.simulate({ forward: 1, backward: 2 })
      expect(simulation.makespan).toBe(makespan)
      expect(simulation.bubble).toBeCloseTo(bubble, 4)
      expect(simulation.ranks.map((rank) => rank.peakInFlight)).toEqual(peak)
    },
  )

  it('agrees with the pipeline puzzle: 1f1b with F = B = 1 has 22 slots and bubble 3/11', () => {
    const simulation = schedule('1f1b', { stages: 4, microbatches: 8 }).simulate({
      forward: 1,
      backward: 1,
    })
    expect(simulation.makespan).toBe(22)
    expect(simulation.bubble).toBeCloseTo(3 / 11, 12)
  })
})

describe('the formulas for makespan, bubble and peak', () => {
  const counts = [1, 2, 3, 4, 5, 7, 8]
  const cases = counts.flatMap((stages) => counts.map((microbatches) => ({ stages, microbatches })))

  it.each(cases)(
    'hold for $stages stages and $microbatches micro-batches',
    ({ stages, microbatches }) => {
      const [forward, backward] = [3, 5]
      const run = (name: ScheduleName) =>
        schedule(name, { stages, microbatches }).simulate({ forward, backward })
      const naive = run('naive')
      expect(naive.makespan).toBe(microbatches * stages * (forward + backward))
      expect(naive.bubble).toBeCloseTo((stages - 1) / stages, 12)
      for (const name of ['gpipe', '1f1b'] as const) {
        const { makespan, bubble } = run(name)
        expect(makespan).toBe((microbatches + stages - 1) * (forward + backward))
        expect(bubble).toBeCloseTo((stages - 1) / (microbatches + stages - 1), 12)
      }
      const peaks = (name: ScheduleName) => run(name).ranks.map((rank) => rank.peakInFlight)
      expect(peaks('gpipe')).toEqual(Array<number>(stages).fill(microbatches))
      expect(peaks('1f1b')).toEqual(
        Array.from({ length: stages }, (_, rank) => Math.min(microbatches, stages - rank)),
      )
    },
  )
})
