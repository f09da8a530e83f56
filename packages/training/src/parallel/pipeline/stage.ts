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

/** A micro-batch between its forward and its backward pass. */
interface InFlight {
  readonly input: Tensor
  readonly labels: Tensor | undefined
  readonly pass: StagePass
  /** True if its row is not an example: it only takes part in the collectives of passes. */
  readonly isEmpty: boolean
  /** On the last stage, unless it was freed to be recomputed. */
  loss: Recording | undefined
}

/** What is done with the gradients of a batch. */
export interface GradientPlan {
  /** The position of the batch in the training. */
  readonly place?: BatchPlace
  /** The ranks with other examples: see `Pass.replicas`. */
  readonly replicas?: readonly ProcessGroup[] | undefined
  /** The factor of the summed loss. */
  readonly scale: number
  /** Takes the gradients of each pass. Only for a stage that is the whole model. */
  readonly averaging?: Averaging | undefined
  /** Takes each gradient, summed over micro-batches, when complete; default: `takeGradients` returns it. */
  readonly onGradient?: GradientListener | undefined
  /** Whether other stages add to a parameter's gradient, which then stays for `takeGradients`. */
  readonly isShared?: (name: string) => boolean
}

export interface StageOptions {
  readonly loss: PartLoss
  readonly runner: Runner
  /** Records the loss and the freeing of memory, which the runner does not record. */
  readonly recorder?: SpanRecorder | undefined
}

/** A micro-batch that enters a stage. */
export interface Arrival {
  /** Owned by the stage. */
  readonly input: Tensor
  /** On the last stage only; owned by the stage. */
  readonly labels: Tensor | undefined
  /** Whether any stage before this one has parameters. */
  readonly needsInputGradient: boolean
  /** The index of its first row in the batch. */
  readonly row: number
  readonly isEmpty: boolean
}

/**
 * The computations of one stage of a pipeline. It holds the activations of every micro-batch between its
 * forward and its backward pass, and sums the gradients of its parameters over the micro-batches.
 */
export class PipelineStage {
  readonly #module: Module
  readonly #options: StageOptions
  readonly #usesPass: boolean
  readonly #inFlight = new Map<number, InFlight>()
  #gradients = new Map<string, Tensor>()
  #plan: GradientPlan = { scale: 1 }
  /** The scale of the last batch as a tensor. */
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

  /** Starts a batch, and frees what a failed batch left behind. */
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

  /** The loss of the batch after all forward passes; on the last stage only. */
  async summedLoss(): Promise<number> {
    let sum = 0
    for (const loss of this.#losses) sum += await loss
    return sum
  }

  /**
   * Runs a micro-batch forward, on the last stage through the loss.
   *
   * @returns the output, valid until `release` or the backward pass of the micro-batch
   */
  async forward(microbatch: number, arrival: Arrival): Promise<Tensor> {
    const { input, labels, needsInputGradient, row, isEmpty } = arrival
    const { place = { step: 0, row: 0 }, replicas } = this.#plan
    let pass: StagePass
    try {
      const { runner } = this.#options
      const run = () => runner.record(input, needsInputGradient, this.#plan.averaging)
      const made =
        this.#usesPass || isEmpty
          ? inPass(
              { training: true, step: place.step, row: place.row + row, isEmpty, replicas },
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
        // summedLoss() throws if it cannot be fetched
        if (typeof value !== 'number') value.catch(() => undefined)
        this.#losses.push(value)
      })
    }
    return pass.value
  }

  /** Called when the output is no longer needed: with `recompute` frees everything except the input. */
  release(microbatch: number): void {
    const flight = this.#inFlight.get(microbatch)!
    if (!flight.pass.release()) return
    flight.loss?.dispose()
    flight.loss = undefined
  }

  /**
   * Runs a micro-batch backward and frees its activations.
   *
   * @param outputGradient - disposed here; undefined on the last stage, which starts from the loss
   * @param isLast - whether it is the last micro-batch of the batch, whose gradients complete the sums
   * @returns the gradient of the input, which the caller disposes; undefined if it is not needed
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

  /** The first half of `backward`. The activations stay for the second half. */
  async backwardInput(microbatch: number, outputGradient?: Tensor): Promise<Tensor | undefined> {
    return await this.#runBackward(microbatch, outputGradient, (flight, dy) =>
      // a module that records its own passes may have no halves: then run the whole backward pass
      flight.pass.backwardInput === undefined
        ? flight.pass.backward(dy, this.#sink(flight, false))
        : flight.pass.backwardInput(dy),
    )
  }

  /** The second half of `backward`. */
  backwardParameters(microbatch: number, isLast: boolean): void {
    const flight = this.#inFlight.get(microbatch)!
    if (flight.pass.backwardInput !== undefined) {
      flight.pass.backwardParameters?.(this.#sink(flight, isLast))
    }
    this.#end(microbatch, isLast)
  }

  /** Returns the gradients that no listener took, by parameter name; the caller disposes them. */
  takeGradients(): Map<string, Tensor> {
    const gradients = this.#gradients
    this.#gradients = new Map()
    return gradients
  }

  /** Runs a forward pass without a backward pass, and disposes `input`. The caller disposes the output. */
  async infer(input: Tensor): Promise<Tensor> {
    try {
      return await this.#options.runner.infer(input)
    } finally {
      input.dispose()
    }
  }

  /** The summed loss and the right answers; disposes the labels. */
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

  /** Scales the summed loss, so that gradients of micro-batches of any size can be added. */
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
    // without a listener for the sums, passes may add to the sums directly
    if (!isLast || onGradient === undefined) return add
    return (parameter, gradient) => {
      add(parameter, gradient)
      this.#handOver(parameter)
    }
  }

  #end(microbatch: number, isLast: boolean): void {
    this.free(microbatch)
    // hand over the sums to which the last micro-batch added nothing
    if (isLast) for (const parameter of this.parameters) this.#handOver(parameter)
  }

  #handOver(parameter: Parameter): void {
    const { onGradient, isShared } = this.#plan
    const sum = this.#gradients.get(parameter.name)
    if (onGradient === undefined || sum === undefined || isShared?.(parameter.name)) return
    this.#gradients.delete(parameter.name)
    onGradient(parameter, sum)
  }

  /** Frees everything held for a micro-batch. */
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
