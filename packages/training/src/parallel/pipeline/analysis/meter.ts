import { host, monotonicNow } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Span, SpanRecorder } from '@tsrun/distributed/record'

/** The measurements of one training step on one rank. Times are in milliseconds. */
export interface StepSample {
  /** The time from the start of the first action to the end of the last. */
  readonly length: number
  /** The duration of each forward pass, ordered by stage, then by micro-batch. */
  readonly forward: readonly number[]
  /**
   * The duration of each backward pass or, if backward passes are split in halves, of each first
   * half (`I`).
   */
  readonly backward: readonly number[]
  /** The duration of each second half of a backward pass (`W`). */
  readonly weights: readonly number[]
  /**
   * The CPU time of each forward pass. `backwardCpu` and `weightsCpu` are the CPU times of backward
   * passes.
   */
  readonly forwardCpu: readonly number[]
  readonly backwardCpu: readonly number[]
  readonly weightsCpu: readonly number[]
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
  const of = (...kinds: Span['kind'][]): Span[] =>
    spans.filter(({ kind }) => kinds.includes(kind)).sort((a, b) => place(a) - place(b))
  const times = (list: readonly Span[]): number[] => list.map(({ start, end }) => end - start)
  const cpuTimes = (list: readonly Span[]): number[] => list.map(({ cpu = 0 }) => cpu)
  const [forwards, backwards, weights] = [of('F'), of('B', 'I'), of('W')]
  // Leave out the final wait for sends to complete: it has no micro-batch.
  const waits = of('wait').filter(({ microbatch }) => microbatch !== undefined)
  const compute = [...forwards, ...backwards, ...weights]
  const waiting = sum(waits.map(({ waited = 0 }) => waited))
  return {
    length:
      Math.max(...compute.map(({ end }) => end)) - Math.min(...compute.map(({ start }) => start)),
    forward: times(forwards),
    backward: times(backwards),
    weights: times(weights),
    forwardCpu: cpuTimes(forwards),
    backwardCpu: cpuTimes(backwards),
    weightsCpu: cpuTimes(weights),
    waiting,
    transfer: sum(times(waits)) - waiting,
  }
}

function place({ stage = 0, microbatch = 0 }: Span): number {
  return stage * 2 ** 24 + microbatch
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
