import { schedule } from '../parallel/pipeline/schedule/schedule.ts'
import type { Simulation } from '../parallel/pipeline/schedule/simulate.ts'
import { bytesOf, type RankLayout, type ModelShape, type PlanDtype } from './memory.ts'

/** What computes and sends. */
export interface Hardware {
  /** Floating-point operations of a rank in a second, as training reaches them. */
  readonly flops: number
  /** Bytes that a rank sends in a second. */
  readonly link: number
  /** Seconds of a message beside its bytes. */
  readonly latency: number
}

export interface StepTime {
  /** Seconds of a step. */
  readonly step: number
  /** The share of all ranks' time in which they wait in the pipeline. */
  readonly bubble: number
  /** Seconds in which gradients and sharded parameters travel, as if nothing overlapped them. */
  readonly exchange: number
  /** The most micro-batches in flight on a rank. */
  readonly inFlight: number
}

/** Micro-batches are simulated until the pipeline repeats itself: so many times the stages. */
const ROUNDS = 3

/** One micro-batch after the other through the pipeline, before gradients are averaged. */
export interface PipelineTime {
  readonly makespan: number
  readonly bubble: number
  readonly inFlight: number
}

/**
 * The time of all micro-batches from the simulator. A forward pass takes 2 operations per parameter and
 * token, and 4 L h s^2 for the two products of attention; a backward pass takes twice that, and with
 * recomputation a forward pass more. The outputs of layers that ranks share are summed twice in each
 * pass, in rings of 2 (t - 1) messages. Micro-batches have one example, and the order is 1F1B.
 *
 * @param examples - those of a replica
 */
export function pipelineTime(
  model: ModelShape,
  { tp, pp, recompute }: RankLayout,
  examples: number,
  dtype: PlanDtype,
  { flops, link, latency }: Hardware,
): PipelineTime {
  const { parameters, layers, width, sequence } = model
  const boundary = sequence * width * bytesOf(dtype)
  const operations = 2 * parameters * sequence + 4 * layers * width * sequence ** 2
  const sums = 2 * (layers / pp) * ringTime(tp, boundary, { link, latency })
  const forward = operations / (tp * pp * flops) + sums
  const backward = 2 * forward + (recompute ? forward : 0)
  const transfer = pp === 1 ? 0 : latency + boundary / link
  const simulate = (microbatches: number): Simulation =>
    schedule('1f1b', { stages: pp, microbatches }).simulate({ forward, backward, transfer })
  const simulated = Math.min(examples, ROUNDS * pp)
  const { makespan: first, ranks } = simulate(simulated)
  const more = examples - simulated
  // with slow messages micro-batches leave in groups of as many as there are stages
  const each = more === 0 ? 0 : (first - simulate(simulated - pp).makespan) / pp
  const makespan = first + more * each
  const bubble = Math.max(0, 1 - (examples * (forward + backward)) / makespan)
  return { makespan, bubble, inFlight: Math.max(...ranks.map(({ peakInFlight }) => peakInFlight)) }
}

/**
 * The time in which gradients are averaged over the replicas. ZeRO stage 3 also gathers the parameters
 * for the forward and for the backward pass of each micro-batch.
 */
export function exchangeTime(
  { parameters }: ModelShape,
  { dp, tp, pp, zero }: RankLayout,
  examples: number,
  dtype: PlanDtype,
  hardware: Hardware,
): number {
  const shared = ringTime(dp, (parameters / (tp * pp)) * bytesOf(dtype), hardware)
  return zero === 3 ? shared / 2 + examples * shared : shared
}

/** An all-reduce in a ring. */
function ringTime(
  ranks: number,
  bytes: number,
  { link, latency }: Pick<Hardware, 'link' | 'latency'>,
): number {
  return 2 * (ranks - 1) * (latency + bytes / ranks / link)
}
