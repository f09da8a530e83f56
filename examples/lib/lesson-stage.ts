import { monotonicNow } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/telemetry'
import {
  recordLoss,
  recordModule,
  summedCrossEntropy,
  sumInto,
  tf,
  type Module,
  type Recording,
  type Tensor,
} from '@tsrun/training'

/** One micro-batch of a batch. */
export interface Microbatch {
  readonly inputs: () => Tensor
  readonly labels: () => Tensor
}

/**
 * The layers of one rank, and the recordings that they keep between the forward and the backward of a
 * micro-batch. The gradients of all micro-batches are summed.
 */
export class LessonStage {
  readonly isFirst: boolean
  readonly isLast: boolean
  readonly gradients = new Map<string, Tensor>()
  readonly #module: Module
  readonly #index: number
  readonly #recorder: SpanRecorder
  readonly #inFlight = new Map<number, { input: Tensor; output: Recording; loss?: Recording }>()
  #microbatches: readonly Microbatch[] = []
  #batchSize = 0
  lossSum = 0
  peakInFlight = 0

  constructor(module: Module, index: number, stages: number, recorder: SpanRecorder) {
    this.#module = module
    this.#index = index
    this.#recorder = recorder
    this.isFirst = index === 0
    this.isLast = index === stages - 1
  }

  begin(microbatches: readonly Microbatch[], batchSize: number): void {
    this.#microbatches = microbatches
    this.#batchSize = batchSize
    this.lossSum = 0
  }

  inputs(microbatch: number): Tensor {
    return this.#microbatches[microbatch]!.inputs()
  }

  /** Runs the forward of a micro-batch, on the last stage up to the loss. */
  forward(microbatch: number, input: Tensor): Tensor {
    return this.#timed('F', microbatch, () => {
      const output = recordModule(this.#module, input, { needsInputGradient: !this.isFirst })
      if (this.isLast) {
        const labels = this.#microbatches[microbatch]!.labels()
        const loss = recordLoss(summedCrossEntropy, output.value, labels)
        this.lossSum += loss.value.dataSync()[0]!
        labels.dispose()
        this.#inFlight.set(microbatch, { input, output, loss })
      } else {
        this.#inFlight.set(microbatch, { input, output })
      }
      this.peakInFlight = Math.max(this.peakInFlight, this.#inFlight.size)
      return output.value
    })
  }

  /**
   * Runs the backward of a micro-batch from the gradient of its output or, on the last stage, from the
   * loss, and disposes its recording. Returns the gradient of the input for the previous stage.
   */
  backward(microbatch: number, outputGradient?: Tensor): Tensor | undefined {
    return this.#timed('B', microbatch, () => {
      const { input, output, loss } = this.#inFlight.get(microbatch)!
      this.#inFlight.delete(microbatch)
      // The only place where the loss is scaled: sums over micro-batches become the mean of the batch.
      const scale = tf.scalar(1 / this.#batchSize)
      const from = outputGradient ?? loss!.backward(scale, () => undefined)!
      const inputGradient = output.backward(from, sumInto(this.gradients))
      tf.dispose([scale, from, input])
      output.dispose()
      loss?.dispose()
      return inputGradient
    })
  }

  #timed<T>(kind: 'F' | 'B', microbatch: number, compute: () => T): T {
    const start = monotonicNow()
    const result = compute()
    this.#recorder.record(kind, start, monotonicNow(), { stage: this.#index, microbatch })
    return result
  }
}
