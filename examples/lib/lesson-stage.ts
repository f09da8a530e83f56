import { monotonicNow } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/distributed'
import {
  recordLoss,
  recordModule,
  summedCrossEntropy,
  sumInto,
  tf,
  type Microbatches,
  type Module,
  type Recording,
  type Tensor,
} from '@tsrun/training'

/** Starts to send a tensor, which may be disposed as soon as this returns. */
type Send = (tensor: Tensor) => Promise<void>

/**
 * The layers of one rank, and the recordings that they keep between the forward and the backward of a
 * micro-batch.
 */
export class LessonStage {
  readonly isFirst: boolean
  readonly isLast: boolean
  /** Of the activations of a micro-batch between two stages, [rows, width]. */
  readonly shape: readonly number[]
  /** The gradients of the current batch, summed over its micro-batches. */
  readonly gradients = new Map<string, Tensor>()
  readonly #module: Module
  readonly #index: number
  readonly #recorder: SpanRecorder
  readonly #inFlight = new Map<
    number,
    { input: Tensor; output: Recording; loss: Recording | undefined }
  >()
  readonly #losses: Tensor[] = []
  #batch: Microbatches | undefined
  peakInFlight = 0

  constructor(
    module: Module,
    index: number,
    stages: number,
    recorder: SpanRecorder,
    shape: readonly number[],
  ) {
    this.shape = shape
    this.#module = module
    this.#index = index
    this.#recorder = recorder
    this.isFirst = index === 0
    this.isLast = index === stages - 1
  }

  begin(batch: Microbatches): void {
    this.#batch = batch
    this.gradients.clear()
  }

  /** Ends a batch. Returns its mean loss, on the last stage; elsewhere 0. */
  async end(): Promise<number> {
    let sum = 0
    for (const loss of this.#losses.splice(0)) {
      const [value] = await loss.data()
      sum += value!
      loss.dispose()
    }
    this.#batch!.dispose()
    return sum / this.#batch!.size
  }

  /** Waits for a message, and records how long. */
  async wait(message: Promise<Tensor>): Promise<Tensor> {
    const start = monotonicNow()
    const tensor = await message
    this.#recorder.record('wait', start, monotonicNow())
    return tensor
  }

  /**
   * Runs the forward of a micro-batch: on the first stage from its inputs, on the last up to the loss.
   * Other stages start to send the output. The promise resolves when it is sent.
   */
  forward(microbatch: number, received?: Tensor, send?: Send): Promise<void> {
    return this.#timed('F', microbatch, () => {
      const input = received ?? this.#batch!.inputs(microbatch)
      const output = recordModule(this.#module, input, { needsInputGradient: !this.isFirst })
      const loss = this.isLast ? this.#lossOf(output.value, microbatch) : undefined
      this.#inFlight.set(microbatch, { input, output, loss })
      this.peakInFlight = Math.max(this.peakInFlight, this.#inFlight.size)
      return loss === undefined && send ? send(output.value) : Promise.resolve()
    })
  }

  /**
   * Runs the backward of a micro-batch from the gradient of its output or, on the last stage, from the
   * loss, and disposes its recording. All stages but the first start to send the gradient of the input.
   * The promise resolves when it is sent.
   */
  backward(microbatch: number, received?: Tensor, send?: Send): Promise<void> {
    return this.#timed('B', microbatch, () => {
      const { input, output, loss } = this.#inFlight.get(microbatch)!
      this.#inFlight.delete(microbatch)
      // The only place where the loss is scaled: sums over micro-batches become the mean of the batch.
      const scale = tf.scalar(1 / this.#batch!.size)
      const outputGradient = received ?? loss!.backward(scale, () => undefined)!
      const inputGradient = output.backward(outputGradient, sumInto(this.gradients))
      const sending = inputGradient && send ? send(inputGradient) : Promise.resolve()
      tf.dispose([scale, outputGradient, input])
      inputGradient?.dispose()
      output.dispose()
      loss?.dispose()
      return sending
    })
  }

  #lossOf(output: Tensor, microbatch: number): Recording {
    const labels = this.#batch!.labels(microbatch)
    const loss = recordLoss(summedCrossEntropy, output, labels)
    this.#losses.push(tf.clone(loss.value))
    labels.dispose()
    return loss
  }

  /**
   * Runs a pass, and records when and for how much CPU time. The pass is all that the rank itself does:
   * it also cuts its inputs from the batch, and copies what it sends.
   */
  #timed<T>(kind: 'F' | 'B', microbatch: number, compute: () => T): T {
    const [start, before] = [monotonicNow(), process.cpuUsage()]
    const result = compute()
    const { user, system } = process.cpuUsage(before)
    const facts = { stage: this.#index, microbatch, cpu: (user + system) / 1000 }
    this.#recorder.record(kind, start, monotonicNow(), facts)
    return result
  }
}
