import type { StepSample } from './meter.ts'
import type { Schedule } from './schedule/schedule.ts'

/** Steps that are simulated, spread over the measured ones. */
const SIMULATED = 32

/** Means over the measured steps of one rank; times in milliseconds. */
export interface RankReport {
  /** One forward, one backward of one micro-batch. */
  readonly forward: number
  readonly backward: number
  /** A step on this rank, and what it was made of; the rest of `idle` is overhead. */
  readonly compute: number
  readonly waiting: number
  readonly transfer: number
  readonly idle: number
  /** CPU time / time, 1 for a core that was always busy. */
  readonly cpuShare: number
}

export interface PipelineReport {
  readonly steps: number
  /** Median length of a step, from its first forward to its last backward on any rank. */
  readonly stepTime: number
  /** Median idle share of all ranks in that time: 1 - compute / (ranks x step time). */
  readonly bubble: number
  /** What the simulator makes of each step's forward and backward times, medians. */
  readonly predictedStepTime: number
  readonly predictedBubble: number
  /** Idle share of each rank, as the simulator predicts it. */
  readonly predictedIdle: readonly number[]
  readonly ranks: readonly RankReport[]
}

/**
 * Sets measured steps beside what the simulator predicts from their forward and backward times.
 *
 * With a core for each rank it takes the times as they were. Ranks that share cores stretch each
 * other's times; then it takes their CPU times and lets them share the cores as well, so that both
 * bubbles mean the same: the share of time in which a rank was not inside a forward or backward.
 *
 * @param samples - by rank, as many of each; see `StepMeter.gather`
 * @param cores - cores that all ranks together have
 */
export function pipelineReport(
  samples: readonly (readonly StepSample[])[],
  schedule: Schedule,
  cores = Infinity,
): PipelineReport {
  const shared = cores < samples.length
  const steps = samples[0]!.map((_, at) => samples.map((rank) => rank[at]!))
  const measured = steps.map((ranks) => {
    const time = Math.max(...ranks.map(({ length }) => length))
    const busy = sum(ranks.map(({ forward, backward }) => forward + backward))
    return { time, bubble: 1 - busy / (ranks.length * time) }
  })
  const every = Math.ceil(steps.length / SIMULATED)
  const predicted = steps
    .filter((_, at) => at % every === 0)
    .map((ranks) =>
      schedule.simulate({
        forward: ranks.map((rank) => (shared ? rank.forwardCpu : rank.forward) / rank.forwards),
        backward: ranks.map((rank) => (shared ? rank.backwardCpu : rank.backward) / rank.backwards),
        cores: shared ? cores : Infinity,
      }),
    )
  return {
    steps: steps.length,
    stepTime: median(measured.map(({ time }) => time)),
    bubble: median(measured.map(({ bubble }) => bubble)),
    predictedStepTime: median(predicted.map(({ makespan }) => makespan)),
    predictedBubble: median(predicted.map(({ bubble }) => bubble)),
    predictedIdle: samples.map((_, rank) =>
      median(predicted.map(({ ranks, makespan }) => ranks[rank]!.idle / makespan)),
    ),
    ranks: samples.map((rank) => rankReport(rank, mean(measured.map(({ time }) => time)))),
  }
}

function rankReport(samples: readonly StepSample[], stepTime: number): RankReport {
  const of = (key: keyof StepSample): number => sum(samples.map((sample) => sample[key]))
  const compute = (of('forward') + of('backward')) / samples.length
  return {
    forward: of('forward') / of('forwards'),
    backward: of('backward') / of('backwards'),
    compute,
    waiting: of('waiting') / samples.length,
    transfer: of('transfer') / samples.length,
    idle: stepTime - compute,
    cpuShare: of('cpu') / of('wall'),
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2
}
