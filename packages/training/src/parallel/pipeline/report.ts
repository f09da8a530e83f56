import { host, monotonicNow } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { actionKinds, type Span, type SpanRecorder } from '@tsrun/distributed/record'
import type { Action, ActionKind } from './schedule/actions.ts'
import type { Schedule } from './schedule/schedule.ts'
import type { SimulationOptions } from './schedule/simulate.ts'

/** The measurements of one training step on one rank. Times are in milliseconds. */
export interface StepSample {
  /** The passes, each with its duration and the CPU time of the rank in it. */
  readonly passes: readonly (Action & { readonly time: number; readonly cpu: number })[]
  /** The time from the start of the first pass to the end of the last. */
  readonly length: number
  /** The time that this rank waited for neighbours that had not started to send. */
  readonly waiting: number
  /** The time that this rank waited for messages that were being sent. */
  readonly transfer: number
  /**
   * The elapsed time of the whole step, including the optimizer. `cpu` is the CPU time of the process in
   * the step.
   */
  readonly wall: number
  readonly cpu: number
}

type PassSample = StepSample['passes'][number]

/**
 * Measures training steps from the spans that a pipeline records.
 *
 * @example
 * const meter = new StepMeter(pipe.recorder)
 * for (const batch of batches) await meter.time(() => pipe.step(batch))
 * const report = pipelineReport(await meter.gather(group), schedule('1f1b', { stages, microbatches }))
 */
export class StepMeter {
  readonly #recorder: SpanRecorder
  readonly #samples: StepSample[] = []
  #lastSpans: readonly Span[] = []

  constructor(recorder: SpanRecorder) {
    this.#recorder = recorder
  }

  async time<T>(step: () => Promise<T>): Promise<T> {
    const mark = this.#recorder.recorded
    this.#recorder.wantsCpu = true
    const before = host.cpuTime() ?? 0
    const start = monotonicNow()
    const result = await step().finally(() => (this.#recorder.wantsCpu = false))
    const wall = monotonicNow() - start
    const spans = this.#recorder.spans(mark)
    this.#lastSpans = spans
    this.#samples.push({ ...sampleOf(spans), wall, cpu: (host.cpuTime() ?? 0) - before })
    return result
  }

  /** The spans that this rank recorded in the last step. */
  get lastSpans(): readonly Span[] {
    return this.#lastSpans
  }

  /** Gathers the samples of all ranks on every rank, in rank order. */
  async gather(group: ProcessGroup): Promise<StepSample[][]> {
    return await group.allGatherObject(this.#samples)
  }
}

function sampleOf(spans: readonly Span[]): Omit<StepSample, 'wall' | 'cpu'> {
  const compute = spans.filter(({ kind }) => actionKinds.has(kind))
  // Leave out the final wait for sends to complete: it has no micro-batch.
  const waits = spans.filter(({ kind, microbatch }) => kind === 'wait' && microbatch !== undefined)
  const waiting = sum(waits.map(({ waited = 0 }) => waited))
  return {
    passes: compute.map(({ kind, stage = 0, microbatch = 0, start, end, cpu = 0 }) => ({
      kind: kind as ActionKind,
      stage,
      microbatch,
      time: end - start,
      cpu,
    })),
    length:
      Math.max(...compute.map(({ end }) => end)) - Math.min(...compute.map(({ start }) => start)),
    waiting,
    transfer: sum(waits.map(({ start, end }) => end - start)) - waiting,
  }
}

/** The largest number of steps to simulate. They are spread evenly over the measured steps. */
const SIMULATED = 32

/** Options of `pipelineReport`. */
export interface ReportOptions {
  /** The number of CPU cores that all ranks share; default: enough for all ranks. */
  readonly cores?: number
  /**
   * The simulated time of a message between ranks in milliseconds; default 0. `messageTime` measures it.
   */
  readonly transfer?: number
}

/** The mean values of one rank over all measured steps. Times are in milliseconds. */
export interface RankReport {
  /** The mean time of one forward pass of a micro-batch; `backward` is that of one backward pass. */
  readonly forward: number
  readonly backward: number
  /** The computing time per step. Idle time that is neither `waiting` nor `transfer` is overhead. */
  readonly compute: number
  readonly waiting: number
  readonly transfer: number
  readonly idle: number
  /** CPU time divided by elapsed time: 1 if the core was busy all the time. */
  readonly cpuShare: number
}

/**
 * Measured steps of a pipeline beside the prediction of the simulator. Times are in milliseconds.
 */
export interface PipelineReport {
  readonly steps: number
  /** The median step time: the longest time on any rank from its first pass to its last. */
  readonly stepTime: number
  /** The median bubble: the fraction of `stepTime` that the ranks are idle, averaged over all ranks. */
  readonly bubble: number
  /**
   * The median step time that the simulator predicts from the measured pass times. `predictedBubble` is
   * the median predicted bubble.
   */
  readonly predictedStepTime: number
  readonly predictedBubble: number
  /** The predicted idle fraction of each rank's time, by rank. */
  readonly predictedIdle: readonly number[]
  readonly ranks: readonly RankReport[]
}

/**
 * Compares measured steps with the simulator's predictions, which use the measured pass times.
 *
 * If ranks share cores, they also wait for a core, before or during an action. In this case both
 * the report and the prediction use CPU times, and simulated ranks wait for a free core too.
 * Otherwise both use elapsed times.
 *
 * @param samples - the samples of each rank, in rank order, from `StepMeter.gather`; every rank has
 *   the same number
 */
export function pipelineReport(
  samples: readonly (readonly StepSample[])[],
  schedule: Schedule,
  { cores = Infinity, transfer = 0 }: ReportOptions = {},
): PipelineReport {
  const isShared = cores < samples.length
  const timeOf = (pass: PassSample): number => (isShared ? pass.cpu : pass.time)
  const computeOf = ({ passes }: StepSample): number => sum(passes.map(timeOf))
  const steps = samples[0]!.map((_, at) => samples.map((rank) => rank[at]!))
  const measured = steps.map((ranks) => {
    const time = Math.max(...ranks.map(({ length }) => length))
    return { time, bubble: 1 - sum(ranks.map(computeOf)) / (ranks.length * time) }
  })
  const every = Math.ceil(steps.length / SIMULATED)
  const predicted = steps
    .filter((_, at) => at % every === 0)
    .map((ranks) =>
      schedule.simulate({
        ...durationsOf(ranks, schedule, timeOf),
        transfer,
        cores: isShared ? cores : Infinity,
      }),
    )
  const times = measured.map(({ time }) => time)
  return {
    steps: steps.length,
    stepTime: median(times),
    bubble: median(measured.map(({ bubble }) => bubble)),
    predictedStepTime: median(predicted.map(({ makespan }) => makespan)),
    predictedBubble: median(predicted.map(({ bubble }) => bubble)),
    predictedIdle: samples.map((_, rank) =>
      median(predicted.map(({ ranks, makespan }) => ranks[rank]!.idle / makespan)),
    ),
    ranks: samples.map((own) => {
      const meanOf = (...kinds: ActionKind[]): number =>
        mean(
          own
            .flatMap(({ passes }) => passes)
            .filter(({ kind }) => kinds.includes(kind))
            .map(timeOf),
        )
      const average = (of: (step: StepSample) => number): number => mean(own.map(of))
      const compute = average(computeOf)
      return {
        forward: meanOf('F'),
        backward: meanOf('B', 'I'),
        compute,
        waiting: average(({ waiting }) => waiting),
        transfer: average(({ transfer }) => transfer),
        idle: mean(times) - compute,
        cpuShare: average(({ cpu }) => cpu) / average(({ wall }) => wall),
      }
    }),
  }
}

/**
 * Returns the median time of a message in milliseconds, from the later of its send and its receive until
 * its arrival.
 *
 * @param spans - the spans that all ranks of one machine recorded in one step; see
 *   `StepMeter.lastSpans`
 */
export function messageTime(spans: readonly Span[]): number {
  const inOrder = spans.toSorted((a, b) => a.start - b.start)
  const sends = inOrder.filter(({ kind }) => kind === 'send')
  const times = inOrder
    .filter(({ kind }) => kind === 'recv')
    .map(({ rank, peer, microbatch, stage, start, end }) => {
      const at = sends.findIndex(
        (send) =>
          send.rank === peer &&
          send.peer === rank &&
          send.microbatch === microbatch &&
          send.stage === stage,
      )
      const sent = at < 0 ? start : sends.splice(at, 1)[0]!.start
      return end - Math.max(sent, start)
    })
  return times.length === 0 ? 0 : median(times)
}

/**
 * Returns the simulator's durations for a step. If backward passes are split in halves, `backward`
 * holds the first halves.
 */
function durationsOf(
  ranks: readonly StepSample[],
  { placement, microbatches }: Schedule,
  timeOf: (pass: PassSample) => number,
): SimulationOptions {
  const table = (initial: number): number[][] =>
    placement.map(() => Array<number>(microbatches).fill(initial))
  // The simulator rejects NaN, which stands for a pass of the schedule that no rank has run.
  const [forward, backward, weightGradient] = [table(NaN), table(NaN), table(0)]
  const tables = { F: forward, B: backward, I: backward, W: weightGradient }
  const passes = ranks.flatMap((rank) => rank.passes)
  for (const pass of passes) {
    const ofStage = (tables[pass.kind][pass.stage] ??= [])
    ofStage[pass.microbatch] = timeOf(pass)
  }
  const hasHalves = passes.some(({ kind }) => kind === 'W')
  const whole = { forward, backward }
  return hasHalves ? { ...whole, inputGradient: backward, weightGradient } : whole
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2
}
