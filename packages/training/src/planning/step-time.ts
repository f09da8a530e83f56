import { schedule } from '../parallel/pipeline/schedule/schedule.ts'
import { valueBytes, type RankLayout, type ModelShape, type PlanDtype } from './memory.ts'

/** The speed of the ranks and of the links between them. */
export interface Hardware {
  /** Floating-point operations per second that a rank reaches in training. */
  readonly flops: number
  /** Bytes per second that a rank sends to another. */
  readonly link: number
  /** The latency of a message in seconds. */
  readonly latency: number
}

/** The predicted duration of a step, and its parts. */
export interface StepTime {
  /** The duration of a training step in seconds. */
  readonly step: number
  /** The fraction of time that ranks wait in the pipeline, averaged over all ranks. */
  readonly bubble: number
  /** Seconds to exchange gradients and sharded parameters, without any overlap with computation. */
  readonly exchange: number
  /** The largest number of micro-batches whose activations a rank holds at once. */
  readonly inFlight: number
}

/**
 * The number of micro-batches per stage to simulate. After this many, the pipeline is in its steady
 * state.
 */
const ROUNDS = 3

/** The time of a step's micro-batches in the pipeline, without gradient averaging. */
export type PipelineTime = ReturnType<typeof pipelineTime>

/**
 * Simulates all micro-batches of a step with the 1F1B schedule and one example per micro-batch. A forward
 * pass takes 2 operations per parameter and token, and 4 L h s^2 for the two matrix products of attention
 * (L layers, h width, s sequence length). A backward pass takes twice as many operations. Recomputation
 * adds one forward pass. In each pass, two outputs per tensor parallel layer are summed in rings of 2 (t
 * - 1) messages, with t ranks.
 *
 * @param examples - the number of examples of one replica
 */
export function pipelineTime(
  model: ModelShape,
  { tp, pp, recompute }: RankLayout,
  examples: number,
  dtype: PlanDtype,
  { flops, link, latency }: Hardware,
) {
  const { parameters, layers, width, sequence } = model
  const boundary = sequence * width * valueBytes[dtype]
  const operations = 2 * parameters * sequence + 4 * layers * width * sequence ** 2
  const sums = 2 * (layers / pp) * ringTime(tp, boundary, { link, latency })
  const forward = operations / (tp * pp * flops) + sums
  const backward = 2 * forward + (recompute ? forward : 0)
  const transfer = pp === 1 ? 0 : latency + boundary / link
  const simulate = (microbatches: number) =>
    schedule('1f1b', { stages: pp, microbatches }).simulate({ forward, backward, transfer })
  const simulated = Math.min(examples, ROUNDS * pp)
  const { makespan: first, ranks } = simulate(simulated)
  const more = examples - simulated
  // With slow messages, micro-batches leave the pipeline in groups of `pp`.
  const each = more === 0 ? 0 : (first - simulate(simulated - pp).makespan) / pp
  const makespan = first + more * each
  const bubble = Math.max(0, 1 - (examples * (forward + backward)) / makespan)
  return { makespan, bubble, inFlight: Math.max(...ranks.map(({ peakInFlight }) => peakInFlight)) }
}

/**
 * Returns the seconds to average gradients over the replicas. ZeRO stage 3 also gathers the
 * parameters for each forward and each backward pass of a micro-batch.
 */
export function exchangeTime(
  { parameters }: ModelShape,
  { dp, tp, pp, zero }: RankLayout,
  examples: number,
  dtype: PlanDtype,
  hardware: Hardware,
): number {
  const shared = ringTime(dp, (parameters / (tp * pp)) * valueBytes[dtype], hardware)
  return zero === 3 ? shared / 2 + examples * shared : shared
}

function ringTime(
  ranks: number,
  bytes: number,
  { link, latency }: Pick<Hardware, 'link' | 'latency'>,
): number {
  return 2 * (ranks - 1) * (latency + bytes / ranks / link)
}
