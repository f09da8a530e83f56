import { runWorld } from '@tsrun/distributed'
import { SpanRecorder, type Span } from '@tsrun/distributed/record'
import { parseSchedule, schedule, type ActionKind } from '@tsrun/training/planning'
import {
  loadBackend,
  messageTime,
  pipeline,
  pipelineReport,
  SGD,
  shardedMLP,
  StepMeter,
  type MeasuredPass,
  type StepSample,
} from '@tsrun/training'
import { exampleBatch } from '../support/reference.ts'

const microbatches = 4
const plan = schedule('1f1b', { stages: 2, microbatches })

type Times = Partial<Record<ActionKind, readonly number[]>>

const each = (time: number): number[] => Array<number>(microbatches).fill(time)

/** @param times - of the passes of each kind, by micro-batch; the CPU times are `share` times as long */
function sample(
  times: Times = { F: each(1), B: each(2) },
  { share = 1, length = 15 } = {},
): StepSample {
  const passes = Object.entries(times).flatMap(([kind, list]) =>
    list.map((time, microbatch): MeasuredPass => {
      return { kind: kind as ActionKind, stage: undefined, microbatch, time, cpu: share * time }
    }),
  )
  return {
    passes: passes.filter(({ time }) => time > 0),
    length,
    waiting: 0,
    transfer: 0,
    wall: 16,
    cpu: 8,
  }
}

describe('pipelineReport', () => {
  it('agrees with the simulator if no time is lost', () => {
    const report = pipelineReport([[sample()], [sample(undefined, { length: 12 })]], plan)
    expect(report.stepTime).toBe(15)
    expect(report.bubble).toBeCloseTo(1 / 5, 12)
    expect(report.predictedStepTime).toBe(15)
    expect(report.predictedBubble).toBeCloseTo(1 / 5, 12)
    expect(report.ranks[0]).toMatchObject({
      forward: 1,
      backward: 2,
      compute: 12,
      idle: 3,
      cpuShare: 0.5,
    })
  })

  it('takes the median of the steps, so that one slow step does not count', () => {
    const slow = sample(undefined, { length: 1500 })
    const ranks = [0, 1].map(() => [sample(), slow, sample()])
    expect(pipelineReport(ranks, plan)).toMatchObject({ steps: 3, stepTime: 15 })
  })

  it('predicts schedules with halved backward passes from samples of whole passes', () => {
    const halved = schedule('zb-h1', { stages: 2, microbatches })
    const { predictedStepTime } = pipelineReport([[sample()], [sample()]], halved)
    const options = { forward: 1, backward: 2, inputGradient: 1, weightGradient: 1 }
    expect(predictedStepTime).toBe(halved.simulate(options).makespan)
  })

  it('simulates action lists with whole and halved backward passes', () => {
    const mixed = parseSchedule('0F0 0F1 0B0 0I1 0W1\n1F0 1I0 1F1 1B1 1W0')
    const ranks = [
      [sample({ F: [1, 1], B: [2], I: [0, 1], W: [0, 1] })],
      [sample({ F: [1, 1], B: [0, 2], I: [1], W: [4] })],
    ]
    const { predictedStepTime, predictedIdle } = pipelineReport(ranks, mixed)
    expect(predictedStepTime).toBe(10)
    expect(predictedIdle).toEqual([0.4, 0.1])
  })

  it('simulates unequal stages with a time for each', () => {
    const report = pipelineReport(
      [[sample(undefined, { length: 27 })], [sample({ F: each(2), B: each(4) })]],
      plan,
    )
    expect(report.predictedStepTime).toBe(4 * 6 + 3)
    expect(report.predictedBubble).toBeCloseTo(report.bubble, 12)
    expect(report.predictedIdle[0]).toBeCloseTo(15 / 27, 12)
  })

  it('counts the CPU times of ranks that share cores, and lets them wait for a core', () => {
    const samples = [0, 1].map(() => [sample(undefined, { share: 0.5 })])
    const shared = pipelineReport(samples, plan, { cores: 1 })
    expect(shared.predictedStepTime).toBeCloseTo(2 * 6, 12)
    expect(shared.predictedBubble).toBeCloseTo(0.5, 12)
    expect(shared.bubble).toBeCloseTo(1 - 12 / 30, 12)
    expect(shared.ranks[0]).toMatchObject({ forward: 0.5, backward: 1, compute: 6 })
    expect(pipelineReport(samples, plan, { cores: 2 }).predictedStepTime).toBe(15)
  })
})

describe('messageTime', () => {
  it('is the time from the later of send and receive to the arrival', () => {
    const span = (rank: number, kind: Span['kind'], peer: number, start: number, end: number) => ({
      ...{ rank, kind, peer, start, end, microbatch: 0, bytes: 4 },
    })
    const early = [span(0, 'send', 1, 10, 12), span(1, 'recv', 0, 2, 13)]
    const late = [span(1, 'send', 0, 20, 31), span(0, 'recv', 1, 30, 32)]
    expect(messageTime(early)).toBe(3)
    expect(messageTime(late)).toBe(2)
    expect(messageTime([...early, ...late])).toBe(2.5)
    expect(messageTime([])).toBe(0)
  })

  it('is added by the simulator to every transfer', () => {
    const samples = [[sample()], [sample()]]
    const { predictedStepTime } = pipelineReport(samples, schedule('naive', plan), { transfer: 2 })
    expect(predictedStepTime).toBe(microbatches * (2 * 3 + 2 * 2))
  })
})

function counts({ passes }: StepSample) {
  const found: Partial<Record<ActionKind, number>> = {}
  for (const { kind } of passes) found[kind] = (found[kind] ?? 0) + 1
  return found
}

describe('StepMeter', () => {
  it('samples every step on every rank, and keeps the spans of the last one', async () => {
    await loadBackend('wasm')
    const ranks = await runWorld({ size: 2 }, async (group) => {
      const optimizer = new SGD({ learningRate: 0.1 })
      const model = shardedMLP({ layers: 4, inputs: 8, hidden: 8, outputs: 3 })
      const pipe = pipeline(model, group, { microbatches, optimizer })
      const meter = new StepMeter(pipe.recorder)
      for (let step = 0; step < 3; step++) {
        await meter.time(() => pipe.step({ size: 8, ...exampleBatch(step, 8, 8, 3) }))
      }
      const samples = await meter.gather(group)
      pipe.dispose()
      return { samples, kinds: meter.lastSpans.map(({ kind }) => kind) }
    })
    expect(ranks[1]!.samples).toEqual(ranks[0]!.samples)
    expect(ranks[0]!.samples.map((steps) => steps.length)).toEqual([3, 3])
    for (const step of ranks[0]!.samples.flat()) {
      expect(counts(step)).toEqual({ F: microbatches, B: microbatches })
      const compute = step.passes.reduce((sum, { time }) => sum + time, 0)
      expect(compute).toBeLessThanOrEqual(step.length)
      expect(step.length).toBeLessThanOrEqual(step.wall)
      expect(step.waiting).toBeGreaterThanOrEqual(0)
    }
    for (const { kinds } of ranks) {
      expect(kinds.filter((kind) => kind === 'F')).toHaveLength(microbatches)
      expect(kinds).toContain('optimizer')
    }
  })

  it.each(['zb-h1', 'interleaved'] as const)(
    'gives all ranks of %s the same report, with passes of all stages',
    async (name) => {
      const stages = name === 'interleaved' ? 4 : 2
      const plan = schedule(name, { stages, ranks: 2, microbatches })
      const reports = await runWorld({ size: 2 }, async (group) => {
        const optimizer = new SGD({ learningRate: 0.1 })
        const model = shardedMLP({ layers: 4, inputs: 8, hidden: 8, outputs: 3 })
        const pipe = pipeline(model, group, { microbatches, optimizer, schedule: name })
        const meter = new StepMeter(pipe.recorder)
        for (let step = 0; step < 3; step++) {
          await meter.time(() => pipe.step({ size: 8, ...exampleBatch(step, 8, 8, 3) }))
        }
        const samples = await meter.gather(group)
        pipe.dispose()
        return { samples, report: pipelineReport(samples, plan) }
      })
      expect(reports[1]).toEqual(reports[0])
      const { samples, report } = reports[0]!
      const passes = (stages / 2) * microbatches
      for (const step of samples.flat()) {
        const halves = { F: passes, I: passes, W: passes }
        expect(counts(step)).toEqual(name === 'zb-h1' ? halves : { F: passes, B: passes })
      }
      expect(report).toMatchObject({ steps: 3, ranks: { length: 2 } })
      expect(report.predictedStepTime).toBeGreaterThan(0)
      expect(report.predictedStepTime).toBeLessThanOrEqual(report.stepTime * 1.5)
      expect(report.predictedIdle.every((idle) => idle >= 0 && idle < 1)).toBe(true)
    },
  )

  it('takes passes that a rank records without a stage for those of its own stage', async () => {
    const reports = await runWorld({ size: 2 }, async (group) => {
      const recorder = new SpanRecorder({ rank: group.rank })
      const meter = new StepMeter(recorder)
      await meter.time(() => {
        for (let microbatch = 0; microbatch < microbatches; microbatch++) {
          const start = 100 + 3 * microbatch
          recorder.record('F', start, start + 1, { microbatch })
          recorder.record('B', start + 1, start + 3, { microbatch })
        }
        return Promise.resolve()
      })
      return pipelineReport(await meter.gather(group), plan)
    })
    for (const { predictedStepTime } of reports) expect(predictedStepTime).toBeCloseTo(15, 6)
  })
})
