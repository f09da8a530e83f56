import type { Span } from '@tsrun/distributed/record'
import { formatAction } from '../schedule/actions.ts'
import type { Schedule } from '../schedule/schedule.ts'
import type { SimulationOptions } from '../schedule/simulate.ts'
import { sum, type StepSample } from './meter.ts'

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
 * Returns the median time of a message in milliseconds, from the later of its send and its receive until
 * its arrival.
 *
 * @param spans - the spans that all ranks of one machine recorded in one step; see
 *   `StepMeter.lastSpans`
 */
export function messageTime(spans: readonly Span[]): number {
  const key = (from: number, to: number, { microbatch, stage }: Span): string =>
    `${from} ${to} ${microbatch ?? ''} ${stage ?? ''}`
  const inOrder = [...spans].sort((a, b) => a.start - b.start)
  const sends = new Map<string, number[]>()
  for (const span of inOrder) {
    if (span.kind !== 'send') continue
    const name = key(span.rank, span.peer!, span)
    sends.set(name, [...(sends.get(name) ?? []), span.start])
  }
  const times = inOrder
    .filter(({ kind }) => kind === 'recv')
    .map((span) => {
      const sent = sends.get(key(span.peer!, span.rank, span))?.shift() ?? span.start
      return span.end - Math.max(sent, span.start)
    })
  return times.length === 0 ? 0 : median(times)
}

/**
 * Returns the simulator's durations for a step. If backward passes are split in halves, `backward`
 * holds the first halves.
 */
function durationsOf(
  ranks: readonly StepSample[],
  { placement, microbatches, actions }: Schedule,
): SimulationOptions {
  const of = (key: 'forward' | 'backward'): number[][] => {
    const rest = ranks.map((rank) => [...rank[key]])
    return placement.map((rank) => rest[rank]!.splice(0, microbatches))
  }
  const [forward, backward] = [of('forward'), of('backward')]
  if (ranks.every(({ weights }) => weights.length === 0)) return { forward, backward }
  const rest = ranks.map(({ weights }) => [...weights])
  const halved = new Set(actions.flat().map(formatAction))
  const weightGradient = placement.map((rank, stage) =>
    Array.from({ length: microbatches }, (_, microbatch) =>
      halved.has(formatAction({ kind: 'W', stage, microbatch })) ? rest[rank]!.shift()! : 0,
    ),
  )
  return { forward, backward, inputGradient: backward, weightGradient }
}

function onCpu(sample: StepSample): StepSample {
  const { forwardCpu, backwardCpu, weightsCpu } = sample
  return { ...sample, forward: forwardCpu, backward: backwardCpu, weights: weightsCpu }
}

function rankReport(samples: readonly StepSample[], stepTime: number): RankReport {
  const of = (key: 'waiting' | 'transfer' | 'cpu' | 'wall'): number =>
    sum(samples.map((sample) => sample[key]))
  const compute = mean(samples.map(computeOf))
  return {
    forward: mean(samples.flatMap(({ forward }) => forward)),
    backward: mean(samples.flatMap(({ backward }) => backward)),
    compute,
    waiting: of('waiting') / samples.length,
    transfer: of('transfer') / samples.length,
    idle: stepTime - compute,
    cpuShare: of('cpu') / of('wall'),
  }
}

function computeOf({ forward, backward, weights }: StepSample): number {
  return sum(forward) + sum(backward) + sum(weights)
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2
}
