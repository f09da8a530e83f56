import { host, monotonicNow } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { actionKinds, type Span, type SpanRecorder } from '@tsrun/distributed/record'
import type { ActionKind } from './schedule/actions.ts'
import type { Schedule } from './schedule/schedule.ts'
import type { SimulationOptions } from './schedule/simulate.ts'

/** A measured pass of a stage for one micro-batch. Times are in milliseconds. */
export interface MeasuredPass {
  readonly kind: ActionKind
  /** The number of the stage; undefined if the rank has only one stage. */
  readonly stage: number | undefined
  readonly microbatch: number
  readonly time: number
  /** The CPU time of the pass. */
  readonly cpu: number
}

/** The measurements of one training step on one rank. Times are in milliseconds. */
export interface StepSample {
  /** The time from the start of the first pass to the end of the last. */
  readonly length: number
  readonly passes: readonly MeasuredPass[]
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
    length:
      Math.max(...compute.map(({ end }) => end)) - Math.min(...compute.map(({ start }) => start)),
    passes: compute.map(({ kind, stage, microbatch = 0, start, end, cpu = 0 }) => {
      return { kind: kind as ActionKind, stage, microbatch, time: end - start, cpu }
    }),
    waiting,
    transfer: sum(waits.map(({ start, end }) => end - start)) - waiting,
  }
}

/** The largest number of steps to simulate, spread evenly over the measured steps. */
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
  /** The mean time of one forward pass of a micro-batch. */
  readonly forward: number
  /** The mean time of one backward pass, or of its first half. */
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
 * Measured steps of a pipeline, compared with the simulator's prediction. Times are in milliseconds.
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
  const shared = cores < samples.length
  const times = shared ? samples.map((rank) => rank.map(onCpu)) : samples
  const steps = times[0]!.map((_, at) => times.map((rank) => rank[at]!))
  const measured = steps.map((ranks) => {
    const time = Math.max(...ranks.map(({ length }) => length))
    const busy = sum(ranks.map(computeOf))
    return { time, bubble: 1 - busy / (ranks.length * time) }
  })
  const every = Math.ceil(steps.length / SIMULATED)
  const predicted = steps
    .filter((_, at) => at % every === 0)
    .map((ranks) =>
      schedule.simulate({
        ...durationsOf(ranks, schedule),
        transfer,
        cores: shared ? cores : Infinity,
      }),
    )
  return {
    steps: steps.length,
    stepTime: median(measured.map(({ time }) => time)),
    bubble: median(measured.map(({ bubble }) => bubble)),
    predictedStepTime: median(predicted.map(({ makespan }) => makespan)),
    predictedBubble: median(predicted.map(({ bubble }) => bubble)),
    predictedIdle: times.map((_, rank) =>
      median(predicted.map(({ ranks, makespan }) => ranks[rank]!.idle / makespan)),
    ),
    ranks: times.map((rank) => rankReport(rank, mean(measured.map(({ time }) => time)))),
  }
}

/**
 * Returns the median time of a message in milliseconds. The time begins when both the send and the receive
 * have started, and ends when the message has arrived.
 *
 * @param spans - the spans that all ranks of one machine recorded in one step; see
 *   `StepMeter.lastSpans`
 */
export function messageTime(spans: readonly Span[]): number {
  const inOrder = [...spans].sort((a, b) => a.start - b.start)
  const sends = inOrder.filter(({ kind }) => kind === 'send')
  const times = inOrder
    .filter(({ kind }) => kind === 'recv')
    .map((span) => {
      const at = sends.findIndex(
        ({ rank, peer, microbatch, stage }) =>
          rank === span.peer &&
          peer === span.rank &&
          microbatch === span.microbatch &&
          stage === span.stage,
      )
      const [sent = span] = at < 0 ? [] : sends.splice(at, 1)
      return span.end - Math.max(sent.start, span.start)
    })
  return times.length === 0 ? 0 : median(times)
}

/** Returns the measured durations. Without measured halves, the simulator halves the backward passes. */
function durationsOf(
  ranks: readonly StepSample[],
  { placement, microbatches }: Schedule,
): SimulationOptions {
  const table = () => placement.map(() => Array<number>(microbatches).fill(0))
  const times = { F: table(), B: table(), I: table(), W: table() }
  ranks.forEach(({ passes }, rank) => {
    for (const { kind, stage = placement.indexOf(rank), microbatch, time } of passes) {
      times[kind][stage]![microbatch] = time
    }
  })
  const isHalved = ranks.some(({ passes }) => passes.some(({ kind }) => kind === 'W'))
  const { F: forward, B: backward, I: inputGradient, W: weightGradient } = times
  return { forward, backward, ...(isHalved && { inputGradient, weightGradient }) }
}

function onCpu(sample: StepSample): StepSample {
  return { ...sample, passes: sample.passes.map((pass) => ({ ...pass, time: pass.cpu })) }
}

function rankReport(samples: readonly StepSample[], stepTime: number): RankReport {
  const of = (key: 'waiting' | 'transfer' | 'cpu' | 'wall') =>
    sum(samples.map((sample) => sample[key]))
  const passes = samples.flatMap((sample) => sample.passes)
  const meanOf = (...kinds: ActionKind[]) =>
    mean(passes.filter(({ kind }) => kinds.includes(kind)).map(({ time }) => time))
  const compute = mean(samples.map(computeOf))
  return {
    forward: meanOf('F'),
    backward: meanOf('B', 'I'),
    compute,
    waiting: of('waiting') / samples.length,
    transfer: of('transfer') / samples.length,
    idle: stepTime - compute,
    cpuShare: of('cpu') / of('wall'),
  }
}

function computeOf({ passes }: StepSample) {
  return sum(passes.map(({ time }) => time))
}

function sum(values: readonly number[]) {
  return values.reduce((total, value) => total + value, 0)
}

function mean(values: readonly number[]) {
  return sum(values) / values.length
}

function median(values: readonly number[]) {
  const sorted = [...values].sort((a, b) => a - b)
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2
}
