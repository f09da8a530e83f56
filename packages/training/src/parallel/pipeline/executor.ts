import { monotonicNow } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/telemetry'
import type { Tensor } from '../../backend/tensorflow.ts'
import type { Loss } from '../../nn/loss.ts'
import type { Module } from '../../nn/module.ts'
import { Activations, type Message } from './activations.ts'
import type { Microbatches } from './microbatches.ts'
import type { Action } from './schedule/action.ts'
import { Stage } from './stage.ts'

/** What is left of a batch that went forward and backward. */
export interface TrainedBatch {
  /** On the last stage. */
  readonly meanLoss: number
  /** The caller's to dispose. */
  readonly gradients: Map<string, Tensor>
  readonly peakInFlight: number
}

/**
 * Runs one rank's list of actions: for each, takes what it needs from a neighbour or the batch,
 * computes, and sends the result on.
 */
export class StageWorker {
  readonly #stage: Stage
  readonly #activations: Activations
  readonly #recorder: SpanRecorder
  readonly #index: number
  readonly #isFirst: boolean
  readonly #isLast: boolean

  constructor(module: Module, loss: Loss, group: ProcessGroup, recorder: SpanRecorder) {
    this.#index = group.rank
    this.#isFirst = group.rank === 0
    this.#isLast = group.rank === group.size - 1
    this.#recorder = recorder
    this.#stage = new Stage(module, !this.#isFirst, loss)
    this.#activations = new Activations(group, recorder)
  }

  async train(actions: readonly Action[], batch: Microbatches): Promise<TrainedBatch> {
    this.#stage.begin(batch.size)
    await this.#activations.begin(batch.rows, this.#expected(actions))
    for (const { kind, microbatch } of actions) {
      if (kind === 'F') await this.#forward(microbatch, batch)
      else await this.#backward(microbatch)
    }
    await this.#activations.end()
    const meanLoss = await this.#stage.meanLoss()
    const { peakInFlight } = this.#stage
    return { meanLoss, peakInFlight, gradients: this.#stage.takeGradients() }
  }

  /** Forwards only. @returns sums over the batch, on the last stage */
  async evaluate(batch: Microbatches): Promise<{ loss: number; correct: number }> {
    const sums = { loss: 0, correct: 0 }
    const microbatches = [...batch.rows.keys()]
    const expected = microbatches.map((microbatch): Message => ({
      direction: 'forward',
      microbatch,
    }))
    await this.#activations.begin(batch.rows, this.#isFirst ? [] : expected)
    for (const microbatch of microbatches) {
      if (!this.#isFirst) await this.#activations.arrive()
      const output = this.#stage.infer(this.#input(microbatch, batch))
      if (this.#isLast) {
        const { loss, correct } = await this.#stage.score(output, batch.labels(microbatch))
        sums.loss += loss
        sums.correct += correct
      } else {
        await this.#activations.send({ direction: 'forward', microbatch }, output)
        output.dispose()
      }
    }
    await this.#activations.end()
    return sums
  }

  dispose(): void {
    this.#stage.begin(1)
    this.#activations.dispose()
  }

  async #forward(microbatch: number, batch: Microbatches): Promise<void> {
    if (!this.#isFirst) await this.#activations.arrive()
    await this.#timed('F', microbatch, () => {
      const labels = this.#isLast ? batch.labels(microbatch) : undefined
      const output = this.#stage.forward(microbatch, this.#input(microbatch, batch), labels)
      if (this.#isLast) return undefined
      return this.#activations.send({ direction: 'forward', microbatch }, output)
    })
  }

  async #backward(microbatch: number): Promise<void> {
    if (!this.#isLast) await this.#activations.arrive()
    await this.#timed('B', microbatch, async () => {
      const outputGradient = this.#isLast ? undefined : this.#activations.take()
      const inputGradient = this.#stage.backward(microbatch, outputGradient)
      if (inputGradient === undefined) return
      await this.#activations.send({ direction: 'backward', microbatch }, inputGradient)
      inputGradient.dispose()
    })
  }

  #input(microbatch: number, batch: Microbatches): Tensor {
    return this.#isFirst ? batch.inputs(microbatch) : this.#activations.take()
  }

  /** Fetching the input and handing over the output are part of an action: the rank is busy then. */
  async #timed(
    kind: 'F' | 'B',
    microbatch: number,
    compute: () => void | Promise<void>,
  ): Promise<void> {
    const before = process.cpuUsage()
    const start = monotonicNow()
    await compute()
    const end = monotonicNow()
    const { user, system } = process.cpuUsage(before)
    const cpu = (user + system) / 1e3
    this.#recorder.record(kind, start, end, { stage: this.#index, microbatch, cpu })
  }

  /** What this stage receives when it runs `actions`, in the order of use. */
  #expected(actions: readonly Action[]): Message[] {
    return actions.flatMap(({ kind, microbatch }): Message[] => {
      if (kind === 'F') return this.#isFirst ? [] : [{ direction: 'forward', microbatch }]
      return this.#isLast ? [] : [{ direction: 'backward', microbatch }]
    })
  }
}
