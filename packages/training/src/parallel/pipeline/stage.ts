import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan, type SpanRecorder } from '@tsrun/distributed/record'
import { sumInto } from '../../autograd/sum-gradients.ts'
import { takeScalar } from '../../backend/host-memory.ts'
import { usesPass, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { inPass } from '../../model/pass.ts'
import type { GradientListener, Recording } from '../../model/recording.ts'
import type { PartLoss, Tally } from '../../nn/part-loss.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { Averaging } from '../gradients/averaging.ts'
import type { BatchPlace } from './microbatches.ts'
import type { Runner, StagePass } from './runner.ts'

interface InFlight {
  readonly input: Tensor
  readonly labels: Tensor | undefined
  readonly pass: StagePass
  /** Whether the micro-batch has no examples. Its placeholder row only takes part in collectives. */
  readonly isEmpty: boolean
  /** The recording of the loss, on the last stage; undefined while it is freed to be recomputed. */
  loss: Recording | undefined
}

/** How a stage scales the gradients of a batch, and who receives them. */
export interface GradientPlan {
  /** The position of the batch in the training; see `BatchPlace`. */
  readonly place?: BatchPlace
  /** The groups of ranks that run the same pass on other examples; see `Pass.replicas`. */
  readonly replicas?: readonly ProcessGroup[] | undefined
  /** The global ranks of the pipeline. */
  readonly stages?: readonly number[] | undefined
  /** The factor by which the summed loss is multiplied. */
  readonly scale: number
  /** Averages the gradients of each pass; only for a stage that is the whole model. */
  readonly averaging?: Averaging | undefined
  /**
   * Takes each gradient as soon as it is summed over all micro-batches. Default: `takeGradients`
   * returns the gradients.
   */
  readonly onGradient?: GradientListener | undefined
  /**
   * Whether other stages share a parameter. The gradient of a shared parameter stays for `takeGradients`,
   * which sums it.
   */
  readonly isShared?: (name: string) => boolean
}

export interface StageOptions {
  readonly loss: PartLoss
  readonly runner: Runner
  /** Records spans of the loss and of freeing memory. The runner records the passes. */
  readonly recorder?: SpanRecorder | undefined
}

/** The arguments of a micro-batch's forward pass through a stage. */
export interface Arrival {
  /** The input tensor, which the stage owns. */
  readonly input: Tensor
  /** The labels, which the stage owns; only on the last stage. */
  readonly labels: Tensor | undefined
  /** Whether any earlier stage has parameters, so that the input gradient is needed. */
  readonly needsInputGradient: boolean
  /** The index of the micro-batch's first row in the batch. */
  readonly row: number
  readonly isEmpty: boolean
}

/**
 * Runs the computations of one pipeline stage. Keeps the activations of each micro-batch from its
 * forward to its backward pass. Sums parameter gradients over the micro-batches.
 */
export class PipelineStage {
  readonly #module: Module
  readonly #options: StageOptions
  readonly #usesPass: boolean
  readonly #inFlight = new Map<number, InFlight>()
  #gradients = new Map<string, Tensor>()
  #plan: GradientPlan = { scale: 1 }
  /**
   * The scale of the last batch as a number and as a tensor. The backward pass of the loss starts from
   * the tensor.
   */
  #start: { readonly scale: number; readonly tensor: Tensor } | undefined
  #losses: (number | Promise<number>)[] = []

  constructor(module: Module, options: StageOptions) {
    this.#module = module
    this.#usesPass = usesPass(module)
    this.#options = options
  }

  get parameters(): readonly Parameter[] {
    return this.#module.parameters
  }

  /** Starts a batch. Frees the activations and gradients of a previous batch that failed. */
  begin(plan: GradientPlan = { scale: 1 }): void {
    for (const microbatch of [...this.#inFlight.keys()]) this.free(microbatch)
    for (const gradient of this.#gradients.values()) gradient.dispose()
    this.#gradients = new Map()
    this.#plan = plan
    this.#losses = []
  }

  dispose(): void {
    this.begin()
    this.#start?.tensor.dispose()
    this.#start = undefined
  }

  /** Returns the loss summed over the batch. Call it after all forward passes, on the last stage. */
  async summedLoss(): Promise<number> {
    let sum = 0
    for (const loss of this.#losses) sum += await loss
    return sum
  }

  /**
   * Runs the forward pass of a micro-batch, on the last stage including the loss.
   *
   * @returns the output, valid until `release` or the backward pass of the micro-batch
   */
  async forward(microbatch: number, arrival: Arrival): Promise<Tensor> {
    const { input, labels, needsInputGradient, row, isEmpty } = arrival
    const { place = { step: 0, row: 0 }, replicas, stages } = this.#plan
    let pass: StagePass
    try {
      const { runner } = this.#options
      const run = () => runner.record(input, needsInputGradient, this.#plan.averaging)
      const made =
        this.#usesPass || isEmpty
          ? inPass(
              { training: true, step: place.step, row: place.row + row, isEmpty, replicas, stages },
              run,
            )
          : run()
      pass = await made
    } catch (error) {
      tf.dispose([input, ...(labels === undefined ? [] : [labels])])
      throw error
    }
    const flight: InFlight = { input, labels, pass, isEmpty, loss: undefined }
    this.#inFlight.set(microbatch, flight)
    if (labels !== undefined && !isEmpty) {
      await timeSpan(this.#options.recorder, 'F', { name: 'loss' }, async () => {
        const { value: sum } = await this.#lossOf(flight)
        const value = takeScalar(tf.clone(sum))
        // Ignore an error here, because summedLoss() awaits the same promise and throws it.
        if (typeof value !== 'number') value.catch(() => undefined)
        this.#losses.push(value)
      })
    }
    return pass.value
  }

  /**
   * Frees all tensors of a micro-batch except its input, if `recompute` is set. Call it when the
   * output is no longer needed.
   */
  release(microbatch: number): void {
    const flight = this.#inFlight.get(microbatch)!
    if (!flight.pass.release()) return
    flight.loss?.dispose()
    flight.loss = undefined
  }

  /**
   * Runs the backward pass of a micro-batch, and frees its activations.
   *
   * @param outputGradient - the gradient of the output, disposed by this call; undefined on the
   *   last stage, which starts from the loss
   * @param isLast - whether this is the last backward pass of the batch, which completes the
   *   gradient sums
   * @returns the gradient of the input, which the caller disposes; undefined if no earlier stage
   *   needs it
   */
  async backward(
    microbatch: number,
    outputGradient: Tensor | undefined,
    isLast: boolean,
  ): Promise<Tensor | undefined> {
    const { averaging } = this.#plan
    if (averaging !== undefined) averaging.synchronizes = isLast
    const inputGradient = await this.#runBackward(microbatch, outputGradient, (flight, dy) =>
      flight.pass.backward(dy, this.#sink(flight, isLast)),
    )
    this.#end(microbatch, isLast)
    return inputGradient
  }

  /**
   * Runs the first half of the backward pass, for the input gradient. Keeps the activations for the
   * second half.
   */
  async backwardInput(microbatch: number, outputGradient?: Tensor): Promise<Tensor | undefined> {
    return await this.#runBackward(microbatch, outputGradient, (flight, dy) =>
      // A module with its own `record` may not support halves. Then run the whole backward pass here.
      flight.pass.backwardInput === undefined
        ? flight.pass.backward(dy, this.#sink(flight, false))
        : flight.pass.backwardInput(dy),
    )
  }

  /** Runs the second half of the backward pass, for the parameter gradients. */
  backwardParameters(microbatch: number, isLast: boolean): void {
    const flight = this.#inFlight.get(microbatch)!
    if (flight.pass.backwardInput !== undefined) {
      flight.pass.backwardParameters?.(this.#sink(flight, isLast))
    }
    this.#end(microbatch, isLast)
  }

  /**
   * Returns the gradients that were not passed to a listener, by parameter name. The caller
   * disposes them.
   */
  takeGradients(): Map<string, Tensor> {
    const gradients = this.#gradients
    this.#gradients = new Map()
    return gradients
  }

  /** Runs a forward pass without a backward pass. Disposes `input`; the caller disposes the output. */
  async infer(input: Tensor): Promise<Tensor> {
    try {
      return await this.#options.runner.infer(input)
    } finally {
      input.dispose()
    }
  }

  /** Returns the summed loss and the number of correct answers for some outputs. Disposes the labels. */
  async tally(outputs: Tensor, labels: Tensor): Promise<Tally> {
    try {
      return await this.#options.loss.tally(outputs, labels)
    } finally {
      labels.dispose()
    }
  }

  async #runBackward(
    microbatch: number,
    outputGradient: Tensor | undefined,
    run: (flight: InFlight, dy: Tensor) => Tensor | undefined | Promise<Tensor | undefined>,
  ): Promise<Tensor | undefined> {
    let dy = outputGradient
    try {
      const flight = this.#inFlight.get(microbatch)!
      const { recorder } = this.#options
      dy ??= await timeSpan(recorder, 'B', { name: 'loss' }, () => this.#lossGradient(flight))
      const made = flight.isEmpty
        ? inPass({ training: true, step: 0, isEmpty: true }, () => run(flight, dy!))
        : run(flight, dy)
      return await made
    } finally {
      dy?.dispose()
    }
  }

  /**
   * Returns the gradient of the loss times the scale. All micro-batches use the same scale, so their
   * gradients can be added even if their sizes differ.
   */
  async #lossGradient(flight: InFlight): Promise<Tensor> {
    if (flight.isEmpty) return tf.keep(tf.zerosLike(flight.pass.value))
    const loss = await this.#lossOf(flight)
    const { scale } = this.#plan
    if (this.#start?.scale !== scale) {
      const tensor = tf.keep(tf.scalar(scale))
      this.#start?.tensor.dispose()
      this.#start = { scale, tensor }
    }
    return loss.backward(this.#start.tensor, () => undefined)!
  }

  #sink({ isEmpty }: InFlight, isLast: boolean): GradientListener {
    const { averaging, onGradient } = this.#plan
    if (averaging !== undefined) return averaging.onGradient
    if (isEmpty) return drop
    const add = sumInto(this.#gradients)
    // Return `add` itself if no listener receives the sums. A pass then adds to the sums in place.
    if (!isLast || onGradient === undefined) return add
    return (parameter, gradient) => {
      add(parameter, gradient)
      this.#handOver(parameter)
    }
  }

  #end(microbatch: number, isLast: boolean): void {
    this.free(microbatch)
    // Pass on sums to which the last micro-batch added no gradient.
    if (isLast) for (const parameter of this.parameters) this.#handOver(parameter)
  }

  #handOver(parameter: Parameter): void {
    const { onGradient, isShared } = this.#plan
    const sum = this.#gradients.get(parameter.name)
    if (onGradient === undefined || sum === undefined || isShared?.(parameter.name)) return
    this.#gradients.delete(parameter.name)
    onGradient(parameter, sum)
  }

  /** Frees all tensors that are held for a micro-batch. */
  free(microbatch: number): void {
    const { pass, loss, labels, input } = this.#inFlight.get(microbatch)!
    this.#inFlight.delete(microbatch)
    timeSpan(this.#options.recorder, 'B', { name: 'free' }, () => {
      pass.dispose()
      for (const each of [loss, labels, input]) each?.dispose()
    })
  }

  async #lossOf(flight: InFlight): Promise<Recording> {
    flight.loss ??= await this.#options.loss.record(flight.pass.value, flight.labels!)
    return flight.loss
  }
}

const drop: GradientListener = (_parameter, gradient) => {
  gradient.dispose()
}
