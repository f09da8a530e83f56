import { recordModule } from '../../autograd/record.ts'
import type { GradientListener, Recording } from '../../model/recording.ts'
import { takeScalar } from '../../backend/host-memory.ts'
import { tf, type Tensor } from '../../backend/tfjs.ts'
import type { Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { recordLoss, type Loss } from '../../nn/loss.ts'
import { fetchCorrect } from '../../nn/accuracy.ts'
import { sumInto } from '../../autograd/sum-gradients.ts'

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

/** What becomes of the gradients of a batch. */
export interface GradientPlan {
  /** What they are those of: the loss of all examples together times this. */
  readonly scale: number
  /** Takes the sum over the micro-batches as soon as it is complete; default: `takeGradients` does. */
  readonly onGradient?: GradientListener
  /** Whether more is added to a parameter's gradient afterwards: those stay for `takeGradients`. */
  readonly isShared?: (name: string) => boolean
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
  #plan: GradientPlan = { scale: 1 }
  #losses: (number | Promise<number>)[] = []

  constructor(module: Module, { loss, recompute }: StageOptions) {
    this.#module = module
    this.#loss = loss
    this.#recompute = recompute
  }

  get parameters(): readonly Parameter[] {
    return this.#module.parameters
  }

  /** Starts a pass over a batch; frees what a failed one has left. */
  begin(plan: GradientPlan = { scale: 1 }): void {
    for (const microbatch of [...this.#inFlight.keys()]) this.free(microbatch)
    for (const gradient of this.#gradients.values()) gradient.dispose()
    this.#gradients = new Map()
    this.#plan = plan
    this.#losses = []
  }

  /** Over the batch, once all its micro-batches went forward; last stage only. */
  async summedLoss(): Promise<number> {
    let sum = 0
    for (const loss of this.#losses) sum += await loss
    return sum
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
   * @param isLast - no micro-batch of the batch follows it: its gradients complete the sums
   * @returns the gradient of the input, the caller's to dispose; undefined where nobody needs it
   */
  backward(
    microbatch: number,
    outputGradient: Tensor | undefined,
    isLast: boolean,
  ): Tensor | undefined {
    const inputGradient = this.#runBackward(microbatch, outputGradient, (recording, dy) =>
      recording.backward(dy, this.#sink(isLast)),
    )
    this.#end(microbatch, isLast)
    return inputGradient
  }

  /** The first half of `backward`: the activations stay for the second. */
  backwardInput(microbatch: number, outputGradient?: Tensor): Tensor | undefined {
    return this.#runBackward(microbatch, outputGradient, (recording, dy) =>
      // a module with passes of its own may have no halves: then this is all of it
      recording.backwardInput === undefined
        ? recording.backward(dy, this.#sink(false))
        : recording.backwardInput(dy),
    )
  }

  /** The second half. */
  backwardParameters(microbatch: number, isLast: boolean): void {
    const { recording } = this.#passOf(this.#inFlight.get(microbatch)!)
    if (recording.backwardInput !== undefined) {
      recording.backwardParameters?.(this.#sink(isLast))
    }
    this.#end(microbatch, isLast)
  }

  /** The gradients that nobody has taken yet, by parameter name, the caller's to dispose. */
  takeGradients(): Map<string, Tensor> {
    const gradients = this.#gradients
    this.#gradients = new Map()
    return gradients
  }

  /** The output without a backward to come, the caller's to dispose; `input` is freed. */
  infer(input: Tensor): Tensor {
    try {
      return tf.tidy(() => this.#module.forward(input))
    } finally {
      input.dispose()
    }
  }

  /**
   * Summed loss and number of right answers of class scores [rows, ..., classes]; frees both. Of a row
   * of several answers, such as those for each token of a text, it is the share.
   */
  async score(outputs: Tensor, labels: Tensor): Promise<{ loss: number; correct: number }> {
    const answers = labels.size / labels.shape[0]
    let [loss, correct]: (number | Promise<number>)[] = []
    try {
      loss = takeScalar(tf.tidy(() => this.#loss(outputs, labels)))
      correct = (this.#loss.countCorrect ?? fetchCorrect)(outputs, labels)
    } finally {
      outputs.dispose()
      labels.dispose()
    }
    return { loss: await loss, correct: (await correct) / answers }
  }

  /** The loss is scaled once, here: all that follows is of the sum over micro-batches of any size. */
  #lossGradient(loss: Recording): Tensor {
    const start = tf.scalar(this.#plan.scale)
    try {
      return loss.backward(start, () => undefined)!
    } finally {
      start.dispose()
    }
  }

  #runBackward(
    microbatch: number,
    outputGradient: Tensor | undefined,
    run: (recording: Recording, dy: Tensor) => Tensor | undefined,
  ): Tensor | undefined {
    let dy = outputGradient
    try {
      const { recording, loss } = this.#passOf(this.#inFlight.get(microbatch)!)
      dy ??= this.#lossGradient(loss!)
      return run(recording, dy)
    } finally {
      dy?.dispose()
    }
  }

  #sink(isLast: boolean): GradientListener {
    const add = sumInto(this.#gradients)
    // where nobody waits for the sums, passes may add to them themselves
    if (!isLast || this.#plan.onGradient === undefined) return add
    return (parameter, gradient) => {
      add(parameter, gradient)
      this.#handOver(parameter)
    }
  }

  #end(microbatch: number, isLast: boolean): void {
    this.free(microbatch)
    // those to which the last micro-batch has added nothing
    if (isLast) for (const parameter of this.parameters) this.#handOver(parameter)
  }

  #handOver(parameter: Parameter): void {
    const { onGradient, isShared } = this.#plan
    const sum = this.#gradients.get(parameter.name)
    if (onGradient === undefined || sum === undefined || isShared?.(parameter.name)) return
    this.#gradients.delete(parameter.name)
    onGradient(parameter, sum)
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
