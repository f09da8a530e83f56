import { host, monotonicNow } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { sumInto } from '../../autograd/sum-gradients.ts'
import { addTallies, noTally, type Tally } from '../../nn/part-loss.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { StageMessages } from './activations.ts'
import type { Microbatches } from './microbatches.ts'
import type { Action } from './schedule/actions.ts'
import type { Message } from './shapes.ts'
import type { GradientPlan, PipelineStage } from './stage.ts'

/** The result of a batch after its forward and backward passes. */
export interface TrainedBatch {
  /** The summed loss on the rank of the last stage; 0 on other ranks. */
  readonly loss: number
  /** The gradients that were not passed to `GradientPlan.onGradient`; the caller disposes them. */
  readonly gradients: Map<string, Tensor>
  readonly peakInFlight: number
}

/**
 * Executes the actions of a rank. For each action it receives the input, computes, and sends the result.
 */
export class StageWorker {
  readonly #stages: ReadonlyMap<number, PipelineStage>
  readonly #messages: StageMessages
  /** Records each action as a span; undefined if the stage records its own passes. */
  readonly #recorder: SpanRecorder | undefined
  readonly #last: number

  /**
   * @param stages - the stages of this rank by stage number
   * @param last - the number of the pipeline's last stage
   */
  constructor(
    stages: ReadonlyMap<number, PipelineStage>,
    last: number,
    messages: StageMessages,
    recorder: SpanRecorder | undefined,
  ) {
    this.#stages = stages
    this.#last = last
    this.#messages = messages
    this.#recorder = recorder
  }

  async train(
    actions: readonly Action[],
    batch: Microbatches,
    plan: GradientPlan,
  ): Promise<TrainedBatch> {
    for (const stage of this.#stages.values()) stage.begin(plan)
    await this.#messages.begin(batch, this.#expected(actions))
    const ends = new Map<number, Action>()
    for (const action of actions) if ('BW'.includes(action.kind)) ends.set(action.stage, action)
    let [inFlight, peakInFlight] = [0, 0]
    for (const [at, action] of actions.entries()) {
      const isLast = ends.get(action.stage) === action
      if (action.kind === 'F') await this.#forward(action, batch, actions[at + 1])
      else if (action.kind === 'W') await this.#backwardParameters(action, isLast)
      else await this.#backward(action, isLast)
      inFlight += { F: 1, B: -1, I: 0, W: -1 }[action.kind]
      peakInFlight = Math.max(peakInFlight, inFlight)
    }
    await this.#messages.end()
    const loss = (await this.#stages.get(this.#last)?.summedLoss()) ?? 0
    return { loss, peakInFlight, gradients: this.#takeGradients() }
  }

  /**
   * Runs only forward passes.
   *
   * @returns the sums of losses and correct answers over the batch, on the last stage
   */
  async evaluate(batch: Microbatches): Promise<Tally> {
    let sums = noTally
    await this.infer(batch, async (stage, output, microbatch) => {
      sums = addTallies(sums, await stage.tally(output, batch.labels(microbatch)))
    })
    return sums
  }

  /**
   * Runs only forward passes.
   *
   * @param take - called with each output of the last stage; the output is disposed when `take` has
   *   settled
   */
  async infer(
    batch: Microbatches,
    take: (stage: PipelineStage, output: Tensor, microbatch: number) => Promise<void>,
  ): Promise<void> {
    const visits = [...this.#stages.keys()].flatMap((stage) =>
      [...batch.rows.keys()].map((microbatch): Action => ({ kind: 'F', stage, microbatch })),
    )
    await this.#messages.begin(batch, this.#expected(visits))
    for (const action of visits) {
      const { stage: index, microbatch } = action
      const stage = this.#stages.get(index)!
      const coming: Message = { direction: 'forward', stage: index, microbatch }
      if (index > 0) await this.#messages.arrive(coming)
      const output = await stage.infer(this.#input(coming, batch))
      try {
        if (index === this.#last) await take(stage, output, microbatch)
        else await this.#sendForward(action, output)
      } finally {
        output.dispose()
      }
    }
    await this.#messages.end()
  }

  abandon(): void {
    for (const stage of this.#stages.values()) stage.begin()
  }

  dispose(): void {
    for (const stage of this.#stages.values()) stage.dispose()
    this.#messages.dispose()
  }

  /**
   * Returns the gradients of all stages of this rank. Sums the gradients of parameters that several
   * stages share.
   */
  #takeGradients(): Map<string, Tensor> {
    const gradients = new Map<string, Tensor>()
    const add = sumInto(gradients)
    for (const stage of this.#stages.values()) {
      const own = stage.takeGradients()
      for (const parameter of new Set(stage.parameters)) {
        const gradient = own.get(parameter.name)
        if (gradient !== undefined) add(parameter, gradient)
      }
    }
    return gradients
  }

  async #forward(action: Action, batch: Microbatches, next: Action | undefined): Promise<void> {
    const { stage: index, microbatch } = action
    const stage = this.#stages.get(index)!
    const coming: Message = { direction: 'forward', stage: index, microbatch }
    if (index > 0) await this.#messages.arrive(coming)
    await this.#timed(action, async () => {
      const labels = index === this.#last ? batch.labels(microbatch) : undefined
      const output = await stage.forward(microbatch, {
        input: this.#input(coming, batch, labels),
        labels,
        needsInputGradient: this.#messages.needsGradient(index),
        row: firstRow(batch.rows, microbatch),
        isEmpty: batch.rows[microbatch] === 0,
      })
      if (index < this.#last) await this.#sendForward(action, output)
      // Keep the activations if the backward pass follows at once: recomputing them would save no memory.
      const isNext = next?.stage === index && next.microbatch === microbatch
      if (!isNext) stage.release(microbatch)
    })
  }

  #sendForward({ stage, microbatch }: Action, output: Tensor): void | Promise<void> {
    const learns = this.#stages.get(stage)!.parameters.length > 0
    const needsGradient = learns || this.#messages.needsGradient(stage)
    const message: Message = { direction: 'forward', stage: stage + 1, microbatch }
    return this.#messages.send(message, output, needsGradient)
  }

  async #backward(action: Action, isLast: boolean): Promise<void> {
    const { kind, stage: index, microbatch } = action
    const stage = this.#stages.get(index)!
    const coming: Message = { direction: 'backward', stage: index, microbatch }
    if (this.#learnsNothing(index)) {
      await this.#timed(action, () => {
        if (kind === 'B') stage.free(microbatch)
      })
      return
    }
    if (index < this.#last) await this.#messages.arrive(coming)
    await this.#timed(action, async () => {
      const outputGradient = index === this.#last ? undefined : this.#messages.take(coming)
      const inputGradient =
        kind === 'B'
          ? await stage.backward(microbatch, outputGradient, isLast)
          : await stage.backwardInput(microbatch, outputGradient)
      if (inputGradient === undefined) return
      try {
        await this.#messages.send({ ...coming, stage: index - 1 }, inputGradient)
      } finally {
        inputGradient.dispose()
      }
    })
  }

  async #backwardParameters(action: Action, isLast: boolean): Promise<void> {
    const { stage: index, microbatch } = action
    const stage = this.#stages.get(index)!
    await this.#timed(action, () => {
      if (this.#learnsNothing(index)) stage.free(microbatch)
      else stage.backwardParameters(microbatch, isLast)
    })
  }

  /** Whether neither `stage` nor an earlier stage has parameters, so that no gradient is computed. */
  #learnsNothing(stage: number): boolean {
    return stage < this.#last && !this.#messages.needsGradient(stage + 1)
  }

  /** Returns the input of a stage for a micro-batch. @param labels - disposed if the function throws */
  #input(coming: Message, batch: Microbatches, labels?: Tensor): Tensor {
    try {
      return coming.stage === 0 ? batch.inputs(coming.microbatch) : this.#messages.take(coming)
    } catch (error) {
      labels?.dispose()
      throw error
    }
  }

  /** Records an action as a span, including the time to unpack its input and to pack its output. */
  async #timed(
    { kind, stage, microbatch }: Action,
    compute: () => void | Promise<void>,
  ): Promise<void> {
    const recorder = this.#recorder
    if (recorder === undefined) {
      await compute()
      return
    }
    // The span includes the system calls that read the CPU time. They take as long as a message,
    // and on a busy machine the kernel often preempts the rank there.
    const start = monotonicNow()
    const before = recorder.wantsCpu ? host.cpuTime() : undefined
    await compute()
    const cpu = before === undefined ? undefined : (host.cpuTime() ?? NaN) - before
    recorder.record(kind, start, monotonicNow(), { stage, microbatch, cpu })
  }

  /**
   * Returns the messages that this rank's stages receive during `actions`, in the order in which
   * they are used.
   */
  #expected(actions: readonly Action[]): Message[] {
    return actions.flatMap(({ kind, stage, microbatch }): Message[] => {
      if (kind === 'F') return stage === 0 ? [] : [{ direction: 'forward', stage, microbatch }]
      if (kind === 'W' || stage === this.#last) return []
      return [{ direction: 'backward', stage, microbatch }]
    })
  }
}

function firstRow(rows: readonly number[], microbatch: number): number {
  let first = 0
  for (let i = 0; i < microbatch; i++) first += rows[i]!
  return first
}
