import { recordModule } from '../../autograd/record.ts'
import type { Recording } from '../../autograd/recording.ts'
import { takeScalar } from '../../backend/host-memory.ts'
import { tf, type Tensor } from '../../backend/tensorflow.ts'
import type { Module } from '../../nn/module.ts'
import type { Parameter } from '../../nn/parameter.ts'
import { recordLoss, type Loss } from '../../nn/loss.ts'
import { fetchCorrect } from '../../nn/accuracy.ts'
import { sumInto } from '../../optim/gradients.ts'

/** A micro-batch between its forward and its backward. */
interface InFlight {
  readonly input: Tensor
  readonly labels: Tensor | undefined
  readonly needsInputGradient: boolean
  /** Undefined where it is to be computed again. */
  pass: Pass | undefined
}

interface Pass {
  readonly recording: Recording
  readonly loss: Recording | undefined
}

export interface StageOptions {
  /** Summed over the examples. */
  readonly loss: Loss
  /** Whether to keep the input alone from a forward to its backward, which runs it again. */
  readonly recompute: boolean
}

/**
 * What one stage of a pipeline computes. It holds the activations of every micro-batch from its
 * forward to its backward, and sums the gradients of its parameters over the micro-batches.
 */
export class Stage {
  readonly #module: Module
  readonly #loss: Loss
  readonly #recompute: boolean
  readonly #inFlight = new Map<number, InFlight>()
  #gradients = new Map<string, Tensor>()
  #batchSize = 1
  #losses: (number | Promise<number>)[] = []

  constructor(module: Module, { loss, recompute }: StageOptions) {
    this.#module = module
    this.#loss = loss
    this.#recompute = recompute
  }

  get parameters(): readonly Parameter[] {
    return this.#module.parameters
  }

  /** Starts a pass over a batch of `batchSize` examples; frees what a failed one has left. */
  begin(batchSize: number): void {
    for (const microbatch of [...this.#inFlight.keys()]) this.free(microbatch)
    for (const gradient of this.#gradients.values()) gradient.dispose()
    this.#gradients = new Map()
    this.#batchSize = batchSize
    this.#losses = []
  }

  /** Mean over the batch once all its micro-batches went forward; last stage only. */
  async meanLoss(): Promise<number> {
    let sum = 0
    for (const loss of this.#losses) sum += await loss
    return sum / this.#batchSize
  }

  /**
   * @param input - becomes the stage's
   * @param needsInputGradient - whether anything before this stage learns
   * @param labels - on the last stage, where they end in the loss; become the stage's
   * @returns the output; valid until `release`, or else until the micro-batch's backward
   */
  forward(microbatch: number, input: Tensor, needsInputGradient: boolean, labels?: Tensor): Tensor {
    const flight: InFlight = { input, labels, needsInputGradient, pass: undefined }
    this.#inFlight.set(microbatch, flight)
    const { recording, loss } = this.#passOf(flight)
    if (loss !== undefined) {
      const value = takeScalar(tf.clone(loss.value))
      // If it cannot be fetched, that is the news of meanLoss().
      if (typeof value !== 'number') value.catch(() => undefined)
      this.#losses.push(value)
    }
    return recording.value
  }

  /** Nobody needs the output any more: frees all but the input where it is to be computed again. */
  release(microbatch: number): void {
    if (!this.#recompute) return
    const flight = this.#inFlight.get(microbatch)!
    disposePass(flight.pass)
    flight.pass = undefined
  }

  /**
   * Runs a micro-batch backward and frees its activations.
   *
   * @param outputGradient - freed here; undefined on the last stage, which starts from the loss
   * @returns the gradient of the input, the caller's to dispose; undefined where nobody needs it
   */
  backward(microbatch: number, outputGradient?: Tensor): Tensor | undefined {
    const { recording, loss } = this.#passOf(this.#inFlight.get(microbatch)!)
    const dy = outputGradient ?? this.#lossGradient(loss!)
    const inputGradient = recording.backward(dy, sumInto(this.#gradients))
    dy.dispose()
    this.free(microbatch)
    return inputGradient
  }

  /** The first half of `backward`: the activations stay for the second. */
  backwardInput(microbatch: number, outputGradient?: Tensor): Tensor | undefined {
    const { recording, loss } = this.#passOf(this.#inFlight.get(microbatch)!)
    const dy = outputGradient ?? this.#lossGradient(loss!)
    // a module with passes of its own may have no halves: then this is all of it
    const inputGradient =
      recording.backwardInput === undefined
        ? recording.backward(dy, sumInto(this.#gradients))
        : recording.backwardInput(dy)
    dy.dispose()
    return inputGradient
  }

  /** The second half. */
  backwardParameters(microbatch: number): void {
    const { recording } = this.#passOf(this.#inFlight.get(microbatch)!)
    if (recording.backwardInput !== undefined) {
      recording.backwardParameters?.(sumInto(this.#gradients))
    }
    this.free(microbatch)
  }

  /** The gradients of the mean loss, by parameter name, the caller's to dispose. */
  takeGradients(): Map<string, Tensor> {
    const gradients = this.#gradients
    this.#gradients = new Map()
    return gradients
  }

  /** The output without a backward to come, the caller's to dispose; `input` is freed. */
  infer(input: Tensor): Tensor {
    const output = tf.tidy(() => this.#module.forward(input))
    input.dispose()
    return output
  }

  /**
   * Summed loss and number of right answers of class scores [rows, ..., classes]; frees both. Of a row
   * of several answers, such as those for each token of a text, it is the share.
   */
  async score(outputs: Tensor, labels: Tensor): Promise<{ loss: number; correct: number }> {
    const loss = takeScalar(tf.tidy(() => this.#loss(outputs, labels)))
    const answers = labels.size / labels.shape[0]
    const correct = (this.#loss.countCorrect ?? fetchCorrect)(outputs, labels)
    outputs.dispose()
    labels.dispose()
    return { loss: await loss, correct: (await correct) / answers }
  }

  /**
   * The loss is scaled once, here: its gradient starts as 1 / batch size, so that the sums over
   * micro-batches of whatever sizes are the gradients of the mean over the batch.
   */
  #lossGradient(loss: Recording): Tensor {
    const start = tf.scalar(1 / this.#batchSize)
    const gradient = loss.backward(start, () => undefined)!
    start.dispose()
    return gradient
  }

  /** Frees what is held of a micro-batch. */
  free(microbatch: number): void {
    const { input, labels, pass } = this.#inFlight.get(microbatch)!
    this.#inFlight.delete(microbatch)
    disposePass(pass)
    labels?.dispose()
    input.dispose()
  }

  #passOf(flight: InFlight): Pass {
    const { input, labels, needsInputGradient } = flight
    if (flight.pass !== undefined) return flight.pass
    const recording = recordModule(this.#module, input, { needsInputGradient })
    flight.pass = { recording, loss: undefined }
    if (labels === undefined) return flight.pass
    flight.pass = { recording, loss: recordLoss(this.#loss, recording.value, labels) }
    return flight.pass
  }
}

function disposePass(pass: Pass | undefined): void {
  pass?.loss?.dispose()
  pass?.recording.dispose()
}
