import { runWorld } from '@tsrun/distributed'
import type { Span } from '@tsrun/distributed/record'
import { parseSchedule, schedule, type ActionKind } from '@tsrun/training/planning'
import {
  loadBackend,
  messageTime,
  pipeline,
  pipelineReport,
  SGD,
  shardedMLP,
  StepMeter,
  type StepSample,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { exampleBatch } from '../support/reference.ts'

const microbatches = 4
const plan = schedule('1f1b', { stages: 2, microbatches })

/** The durations of passes by micro-batch. */
type Times = Partial<Record<ActionKind, Readonly<Record<number, number>>>>

const each = (time: number): number[] => Array<number>(microbatches).fill(time)
const whole = { F: each(1), B: each(2) }

/** A step of one rank of two. */
function sample(stage: number, times: Times = whole, rest: Partial<StepSample> = {}): StepSample {
  const passes = Object.entries(times).flatMap(([kind, list]) =>
    Object.entries(list).map(([microbatch, time]) => ({
      ...{ kind: kind as ActionKind, stage, microbatch: Number(microbatch), time, cpu: time },
    })),
  )
  return { passes, length: 15, waiting: 0, transfer: 0, wall: 16, cpu: 8, ...rest }
}

describe('pipelineReport', () => {
  it('agrees with the simulator if no time is lost', () => {
    const report = pipelineReport([[sample(0)], [sample(1, whole, { length: 12 })]], plan)
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
    const slow = { length: 1500 }
    const ranks = [0, 1].map((rank) => [sample(rank), sample(rank, whole, slow), sample(rank)])
    expect(pipelineReport(ranks, plan)).toMatchObject({ steps: 3, stepTime: 15 })
  })

  it('predicts schedules with halved backward passes from samples of whole passes', () => {
    const halved = schedule('zb-h1', { stages: 2, microbatches })
    const { predictedStepTime } = pipelineReport([[sample(0)], [sample(1)]], halved)
    const options = { forward: 1, backward: 2, inputGradient: 1, weightGradient: 1 }
    expect(predictedStepTime).toBe(halved.simulate(options).makespan)
  })

  it('simulates action lists with whole and halved backward passes', () => {
    const mixed = parseSchedule('0F0 0F1 0B0 0I1 0W1\n1F0 1I0 1F1 1B1 1W0')
    const ranks = [
      [sample(0, { F: [1, 1], B: { 0: 2 }, I: { 1: 1 }, W: { 1: 1 } })],
      [sample(1, { F: [1, 1], B: { 1: 2 }, I: { 0: 1 }, W: { 0: 4 } })],
    ]
    const { predictedStepTime, predictedIdle } = pipelineReport(ranks, mixed)
    expect(predictedStepTime).toBe(10)
    expect(predictedIdle).toEqual([0.4, 0.1])
  })

  it('refuses samples of another schedule', () => {
    const other = schedule('1f1b', { stages: 2, microbatches: 3 })
    const fewer = schedule('1f1b', { stages: 1, microbatches })
    const more = schedule('1f1b', { stages: 2, microbatches: 5 })
    for (const plan of [other, fewer, more]) {
      expect(() => pipelineReport([[sample(0)], [sample(1)]], plan)).toThrow(
        failure('ERR_TSR_ARGUMENT', /forward/),
      )
    }
  })

  it('simulates unequal stages with a time for each', () => {
    const report = pipelineReport(
      [[sample(0, whole, { length: 27 })], [sample(1, { F: each(2), B: each(4) })]],
      plan,
    )
    expect(report.predictedStepTime).toBe(4 * 6 + 3)
    expect(report.predictedBubble).toBeCloseTo(report.bubble, 12)
    expect(report.predictedIdle[0]).toBeCloseTo(15 / 27, 12)
  })

  it('counts the CPU times of ranks that share cores, and lets them wait for a core', () => {
    const samples = [0, 1].map((rank) => {
      const { passes, ...step } = sample(rank)
      return [{ ...step, passes: passes.map((pass) => ({ ...pass, cpu: pass.time / 2 })) }]
    })
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
    const samples = [[sample(0)], [sample(1)]]
    const { predictedStepTime } = pipelineReport(samples, schedule('naive', plan), { transfer: 2 })
    expect(predictedStepTime).toBe(microbatches * (2 * 3 + 2 * 2))
  })
})

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
      const count = (kind: ActionKind) => step.passes.filter((pass) => pass.kind === kind).length
      expect([count('F'), count('B')]).toEqual([microbatches, microbatches])
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
})
