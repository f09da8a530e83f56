import { runForward } from '../../autograd/record.ts'
import { RepeatableRecording } from '../../autograd/repeatable-recording.ts'
import { sumInto } from '../../autograd/sum-gradients.ts'
import { takeScalar } from '../../backend/host-memory.ts'
import { usesPass, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { inPass } from '../../model/pass.ts'
import type { GradientListener, Recording } from '../../model/recording.ts'
import { recordLoss, scoreOf, type Loss, type Score } from '../../nn/loss.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { BatchPlace } from './microbatches.ts'

/** A micro-batch between its forward and its backward pass. */
interface InFlight {
  readonly input: Tensor
  readonly labels: Tensor | undefined
  readonly pass: RepeatableRecording
  /** On the last stage, unless it was freed to be recomputed. */
  loss: Recording | undefined
}

/** What is done with the gradients of a batch. */
export interface GradientPlan {
  /** Which batch it is. */
  readonly place?: BatchPlace
  /** A factor of the summed loss whose gradients are computed. */
  readonly scale: number
  /** Takes each sum over the micro-batches when it is complete; default: `takeGradients` returns it. */
  readonly onGradient?: GradientListener
  /** Whether other stages add to a parameter's gradient, which then stays for `takeGradients`. */
  readonly isShared?: (name: string) => boolean
}

export interface StageOptions {
  /** The sum over the examples. */
  readonly loss: Loss
  /** Whether to keep only the input for the backward pass, which runs the forward pass again. */
  readonly recompute: boolean
}

/**
 * The computations of one stage of a pipeline. It holds the activations of every micro-batch between its
 * forward and its backward pass, and sums the gradients of its parameters over the micro-batches.
 */
export class PipelineStage {
  readonly #module: Module
  readonly #loss: Loss
  readonly #recompute: boolean
  readonly #usesPass: boolean
  readonly #inFlight = new Map<number, InFlight>()
  #gradients = new Map<string, Tensor>()
  #plan: GradientPlan = { scale: 1 }
  #losses: (number | Promise<number>)[] = []

  constructor(module: Module, { loss, recompute }: StageOptions) {
    this.#module = module
    this.#usesPass = usesPass(module)
    this.#loss = loss
    this.#recompute = recompute
  }

  get parameters(): readonly Parameter[] {
    return this.#module.parameters
  }

  /** Starts a batch, and frees what a failed one has left. */
  begin(plan: GradientPlan = { scale: 1 }): void {
    for (const microbatch of [...this.#inFlight.keys()]) this.free(microbatch)
    for (const gradient of this.#gradients.values()) gradient.dispose()
    this.#gradients = new Map()
    this.#plan = plan
    this.#losses = []
  }

  /** The loss of the batch after all forward passes; on the last stage only. */
  async summedLoss(): Promise<number> {
    let sum = 0
    for (const loss of this.#losses) sum += await loss
    return sum
  }

  /**
   * Runs a micro-batch forward, on the last stage through the loss.
   *
   * @param input - owned by the stage from now on
   * @param needsInputGradient - whether any stage before this one has parameters
   * @param labels - on the last stage; owned by it from now on
   * @param row - the place of the micro-batch's first row in the batch
   * @returns the output, valid until `release` or the backward pass of the micro-batch
   */
  forward(
    microbatch: number,
    input: Tensor,
    needsInputGradient: boolean,
    labels?: Tensor,
    row = 0,
  ): Tensor {
    const { step, row: first } = this.#plan.place ?? { step: 0, row: 0 }
    const pass = this.#usesPass
      ? inPass(
          { training: true, step, row: first + row },
          () => new RepeatableRecording(this.#module, input, { needsInputGradient }),
        )
      : new RepeatableRecording(this.#module, input, { needsInputGradient })
    const flight: InFlight = { input, labels, pass, loss: undefined }
    this.#inFlight.set(microbatch, flight)
    const { value: output } = pass.recording
    if (labels !== undefined) {
      const value = takeScalar(tf.clone(this.#lossOf(flight).value))
      // summedLoss() throws if it cannot be fetched
      if (typeof value !== 'number') value.catch(() => undefined)
      this.#losses.push(value)
    }
    return output
  }

  /** Called when the output is no longer needed: with `recompute` frees everything except the input. */
  release(microbatch: number): void {
    if (this.#recompute) freePass(this.#inFlight.get(microbatch)!)
  }

  /**
   * Runs a micro-batch backward and frees its activations.
   *
   * @param outputGradient - disposed here; undefined on the last stage, which starts from the loss
   * @param isLast - whether it is the last micro-batch of the batch, whose gradients complete the sums
   * @returns the gradient of the input, which the caller disposes; undefined if it is not needed
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

  /** The first half of `backward`. The activations stay for the second half. */
  backwardInput(microbatch: number, outputGradient?: Tensor): Tensor | undefined {
    return this.#runBackward(microbatch, outputGradient, (recording, dy) =>
      // a module with passes of its own may have no halves: then this does all of it
      recording.backwardInput === undefined
        ? recording.backward(dy, this.#sink(false))
        : recording.backwardInput(dy),
    )
  }

  /** The second half. */
  backwardParameters(microbatch: number, isLast: boolean): void {
    const { recording } = this.#inFlight.get(microbatch)!.pass
    if (recording.backwardInput !== undefined) {
      recording.backwardParameters?.(this.#sink(isLast))
    }
    this.#end(microbatch, isLast)
  }

  /** The gradients that no listener has got, by parameter name; the caller disposes them. */
  takeGradients(): Map<string, Tensor> {
    const gradients = this.#gradients
    this.#gradients = new Map()
    return gradients
  }

  /** The output without a backward pass to follow, which the caller disposes; disposes `input`. */
  infer(input: Tensor): Tensor {
    try {
      return runForward(this.#module, input)
    } finally {
      input.dispose()
    }
  }

  /** The summed loss and the number of right answers; disposes both tensors. */
  async score(outputs: Tensor, labels: Tensor): Promise<Score> {
    try {
      return await scoreOf(this.#loss, outputs, labels)
    } finally {
      tf.dispose([outputs, labels])
    }
  }

  /** The loss is scaled here, once, for gradients of sums over micro-batches of any size. */
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
      const flight = this.#inFlight.get(microbatch)!
      const { recording } = flight.pass
      dy ??= this.#lossGradient(this.#lossOf(flight))
      return run(recording, dy)
    } finally {
      dy?.dispose()
    }
  }

  #sink(isLast: boolean): GradientListener {
    const add = sumInto(this.#gradients)
    // without a listener for the sums, passes may add to them themselves
    if (!isLast || this.#plan.onGradient === undefined) return add
    return (parameter, gradient) => {
      add(parameter, gradient)
      this.#handOver(parameter)
    }
  }

  #end(microbatch: number, isLast: boolean): void {
    this.free(microbatch)
    // the sums to which the last micro-batch has added nothing
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
    const flight = this.#inFlight.get(microbatch)!
    this.#inFlight.delete(microbatch)
    freePass(flight)
    flight.labels?.dispose()
    flight.input.dispose()
  }

  #lossOf(flight: InFlight): Recording {
    flight.loss ??= recordLoss(this.#loss, flight.pass.recording.value, flight.labels!)
    return flight.loss
  }
}

function freePass(flight: InFlight): void {
  flight.loss?.dispose()
  flight.loss = undefined
  flight.pass.free()
}
