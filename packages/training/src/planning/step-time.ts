import { schedule } from '../parallel/pipeline/schedule/schedule.ts'
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

/**
 * The time of a step from the simulator: forward passes take 2 operations per parameter and token, and
 * 2 per layer, token pair and width for each of the two products of attention; backward passes take twice that. Each layer that is shared by
 * t ranks sums its outputs twice in each pass, in rings of 2 (t - 1) messages. Micro-batches have one
 * example. With pipelines the order is 1F1B.
 *
 * @param examples - those of a replica
 */
export function stepTime(
  model: ModelShape,
  layout: RankLayout,
  examples: number,
  dtype: PlanDtype,
  { flops, link, latency }: Hardware,
): StepTime {
  const { dp, tp, pp, zero, recompute } = layout
  const { parameters, layers, width, sequence } = model
  const bytes = bytesOf(dtype)
  const boundary = sequence * width * bytes
  const ring = (ranks: number, size: number): number =>
    2 * (ranks - 1) * (latency + size / ranks / link)
  const operations = 2 * parameters * sequence + 4 * layers * width * sequence ** 2
  const sums = 2 * (layers / pp) * ring(tp, boundary)
  const forward = operations / (tp * pp * flops) + sums
  const backward = 2 * forward + (recompute ? forward : 0)
  const transfer = pp === 1 ? 0 : latency + boundary / link
  const run = (microbatches: number): { makespan: number; bubble: number; inFlight: number } => {
    const { makespan, bubble, ranks } = schedule('1f1b', { stages: pp, microbatches }).simulate({
      ...{ forward, backward, transfer },
    })
    return { makespan, bubble, inFlight: Math.max(...ranks.map((rank) => rank.peakInFlight)) }
  }
  const simulated = Math.min(examples, ROUNDS * pp)
  const found = run(simulated)
  const more = examples - simulated
  const each = more === 0 ? 0 : found.makespan - run(simulated - 1).makespan
  const makespan = found.makespan + more * each
  const busy = examples * (forward + backward)
  const shared = ring(dp, (parameters / (tp * pp)) * bytes)
  // ZeRO stage 3 gathers the parameters for the forward and for the backward pass of each micro-batch.
  const exchange = zero === 3 ? shared / 2 + examples * shared : shared
  return {
    step: makespan + exchange,
    bubble: Math.max(0, 1 - busy / makespan),
    exchange,
    inFlight: found.inFlight,
  }
}
