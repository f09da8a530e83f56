import { tsrError } from '@tsrun/core'
import { timeSpan } from '@tsrun/telemetry'
import { recordChain } from '../autograd/chain.ts'
import { recordModule, runForward } from '../autograd/record.ts'
import { sumInto } from '../autograd/sum-gradients.ts'
import { takeScalar } from '../backend/host-memory.ts'
import { describe } from '../model/describe.ts'
import { buffersOf, communicates, usesPass, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { inPass } from '../model/pass.ts'
import type { GradientListener } from '../model/recording.ts'
import { summedCrossEntropy } from '../nn/cross-entropy.ts'
import { recordLoss, scoreOf, type Loss, type Score } from '../nn/loss.ts'
import type { Averaging } from '../parallel/gradients/averaging.ts'
import { finishStep, optimizerFor, replaceAveraging } from '../parallel/gradients/finish-step.ts'
import {
  cutBatch,
  isEmptyBatch,
  type Batch,
  type BatchPlace,
  type Microbatches,
} from '../parallel/pipeline/microbatches.ts'
import {
  noExamples,
  type Evaluation,
  type GradientResult,
  type StepResult,
} from '../parallel/pipeline/options.ts'
import { recordSegments } from '../parallel/tensor/record-segments.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { exampleOfZeros } from './batch.ts'
import { summed } from '../nn/summed-loss.ts'
import { checkClip, readWholeModelOptions, type WholeModelOptions } from './whole-model-options.ts'

/**
 * Trains a model that is not cut into stages, with the methods of a `Pipeline`. After
 * `dataParallel(whole, group)` or `fullyShard(whole, group)` the batch of a step is this replica's part,
 * and the gradients are averaged over that group while the backward pass runs.
 *
 * @example
 * const whole = wholeModel(new ShardedMLP(), { optimizer: new SGD({ learningRate: 0.1 }) })
 * const { loss } = await whole.step({ inputs, labels })
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function wholeModel<M extends Module>(
  module: M,
  options: WholeModelOptions = {},
): WholeModel<M> {
  if (typeof (module as Partial<Module> | undefined)?.forward !== 'function') {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'module',
      value: describe(module),
      expected: 'a module: its parameters, and forward(x)',
    })
  }
  return new WholeModel(module, options)
}

/** One rank's copy of a model; made by `wholeModel()`. */
export class WholeModel<M extends Module = Module> implements Module {
  readonly module: M
  readonly parameters: readonly Parameter[]
  readonly #options: ReturnType<typeof readWholeModelOptions>
  #loss: Loss
  #averaging: Averaging | undefined
  readonly #usesPass: boolean
  #steps = 0
  #running: string | undefined
  #isDisposed = false

  constructor(module: M, options: WholeModelOptions) {
    this.module = module
    // The getter of a module may build its list on every access.
    this.parameters = module.parameters
    this.#usesPass = usesPass(module)
    this.#options = readWholeModelOptions(options)
    if (this.#options.clip !== undefined) checkClip(this.#options.clip)
    this.#loss = summed(this.#options.loss ?? summedCrossEntropy)
  }

  get buffers(): readonly Parameter[] {
    return buffersOf(this.module)
  }

  get children(): Record<string, Module> {
    return this.module.children ?? {}
  }

  get layers(): readonly Module[] {
    return this.module.layers ?? [this.module]
  }

  forward(x: Tensor): Tensor {
    return this.module.forward(x)
  }

  /** Called by `dataParallel` and `fullyShard`: how `step` averages gradients over replicas. */
  averageBy(averaging: Averaging | undefined): void {
    this.#averaging = replaceAveraging(this.#averaging, averaging, 'the model')
  }

  /**
   * Runs a batch forward and backward and updates the parameters.
   *
   * A batch may be empty if the gradients are averaged with `reduction: 'token'`, and with `unused` of
   * `'zeros'` or `'elsewhere'`.
   *
   * @throws ERR_TSR_ARGUMENT without an optimizer, when the batch does not have its `size`, while another
   *   call is under way, and after `dispose`; ERR_TSR_UNUSED_PARAMETERS when a parameter that is trained
   *   got no gradient
   */
  async step(
    batch: Batch,
    place: BatchPlace = { step: this.#steps++, row: 0 },
  ): Promise<StepResult> {
    const { clip, recorder } = this.#options
    const optimizer = optimizerFor(this.#options.optimizer, 'the options')
    return await this.#alone('step', async () => {
      const averaging = this.#averaging
      const sumScale = averaging?.reduction === 'token' ? averaging.scale : undefined
      const gradients = new Map<string, Tensor>()
      const { loss, examples } = await this.#train(batch, gradients, undefined, place, sumScale)
      const step = {
        parameters: this.parameters,
        optimizer,
        averaging,
        gradients,
        own: { loss, count: examples, examples },
        clip,
        recorder,
      }
      return { loss: loss / examples, peakInFlight: 1, ...(await finishStep(step)) }
    })
  }

  /**
   * Runs a batch forward and backward without updating the parameters.
   *
   * @param onGradient - takes each gradient of the mean loss, which it owns, once all parts of the batch
   *   are summed; default: the gradients are in the result
   */
  async forwardBackward(batch: Batch, onGradient?: GradientListener): Promise<GradientResult> {
    return await this.#alone('forwardBackward', async () => {
      const gradients = new Map<string, Tensor>()
      const place = { step: this.#steps, row: 0 }
      const sums = await this.#train(batch, gradients, onGradient, place)
      return { loss: sums.loss / sums.examples, gradients, peakInFlight: 1 }
    })
  }

  /**
   * Evaluates a batch: runs it forward only. The accuracy is NaN unless labels are those of classes, or
   * the loss counts right answers.
   */
  async evaluate(batch: Batch): Promise<Evaluation> {
    return await this.#alone('evaluate', async () => {
      if (isEmptyBatch(batch)) {
        await this.#averaging?.gather()
        this.#averaging?.release()
        return noExamples
      }
      const parts = cutBatch(batch, this.#options.accumulate)
      const sums = { loss: 0, correct: 0 }
      await this.#averaging?.gather()
      try {
        for (const part of parts.rows.keys()) {
          const { loss, correct } = await this.#score(parts, part)
          sums.loss += loss
          sums.correct += correct
        }
      } finally {
        this.#averaging?.release()
        parts.dispose()
      }
      const { loss, correct } = sums
      const examples = parts.size
      return { loss: loss / examples, correct, accuracy: correct / examples, examples }
    })
  }

  /**
   * Runs inputs forward, for outputs without labels.
   *
   * @param read - called with the outputs, which are disposed after it
   */
  async infer<T>(inputs: Tensor, read: (outputs: Tensor) => T | Promise<T>): Promise<T> {
    return await this.#alone('infer', async () => {
      await this.#averaging?.gather()
      try {
        const outputs = await this.#infer(inputs)
        try {
          return await read(outputs)
        } finally {
          outputs.dispose()
        }
      } finally {
        this.#averaging?.release()
      }
    })
  }

  /** Frees the parameters and buffers. A second call does nothing. */
  dispose(): void {
    if (this.#isDisposed) return
    this.#isDisposed = true
    for (const { value } of new Set([...this.module.parameters, ...this.buffers])) {
      if (!value.isDisposed) value.dispose()
    }
  }

  /**
   * @param gradients - gets the gradients that neither `onGradient` nor an averaging takes
   * @param sumScale - the factor of the summed loss whose gradients are wanted instead of the mean's
   */
  async #train(
    batch: Batch,
    gradients: Map<string, Tensor>,
    onGradient: GradientListener | undefined,
    place: BatchPlace,
    sumScale?: number,
  ): Promise<{ loss: number; examples: number }> {
    const averaging = onGradient === undefined ? this.#averaging : undefined
    if (sumScale !== undefined && isEmptyBatch(batch)) {
      await this.#accompany(batch, averaging)
      return { loss: 0, examples: 0 }
    }
    const { parts, scale } = timeSpan(this.#options.recorder, 'batch', {}, () => {
      const cut = cutBatch(batch, this.#options.accumulate)
      return { parts: cut, scale: tf.scalar(sumScale ?? 1 / cut.size) }
    })
    const sums = sumInto(gradients)
    let loss = 0
    try {
      const last = parts.rows.length - 1
      let { row } = place
      for (let part = 0; part <= last; part++) {
        if (averaging !== undefined) averaging.synchronizes = part === last
        const run = () => this.#pass(parts, part, scale, averaging?.onGradient ?? sums)
        const pass = { training: true, step: place.step, row }
        loss += await (this.#usesPass ? inPass(pass, run) : run())
        row += parts.rows[part]!
      }
    } catch (error) {
      tf.dispose([...gradients.values()])
      averaging?.abandon(error)
      throw error
    } finally {
      scale.dispose()
      parts.dispose()
    }
    if (averaging === undefined) this.#checkComplete(gradients)
    for (const parameter of onGradient === undefined ? [] : this.parameters) {
      const gradient = gradients.get(parameter.name)
      gradients.delete(parameter.name)
      if (gradient !== undefined) onGradient!(parameter, gradient)
    }
    return { loss, examples: parts.size }
  }

  /**
   * Takes part in the collectives of passes of other ranks, without a batch of its own: runs zeros
   * forward and backward.
   */
  async #accompany({ inputs, labels }: Batch, averaging: Averaging | undefined): Promise<void> {
    if (averaging === undefined) return
    if (averaging.recordUnits === undefined && !communicates(this.module)) return
    averaging.synchronizes = true
    const [x, y, scale] = [exampleOfZeros(inputs), exampleOfZeros(labels), tf.scalar(0)]
    const batch = cutBatch({ inputs: x, labels: y }, 1)
    try {
      const run = () => this.#pass(batch, 0, scale, averaging.onGradient)
      const pass = { training: true, step: this.#steps, row: 0, isEmpty: true }
      await (this.#usesPass ? inPass(pass, run) : run())
    } catch (error) {
      averaging.abandon(error)
      throw error
    } finally {
      batch.dispose()
      tf.dispose([x, y, scale])
    }
  }

  async #pass(
    parts: Microbatches,
    part: number,
    scale: Tensor,
    onGradient: GradientListener,
  ): Promise<number> {
    const { recorder } = this.#options
    const held: { dispose(): void }[] = []
    const hold = <T extends { dispose(): void }>(each: T): T => (held.unshift(each), each)
    try {
      const [x, labels] = timeSpan(recorder, 'batch', {}, () => [
        hold(parts.inputs(part)),
        hold(parts.labels(part)),
      ])
      const outputs = hold(await this.#record(x))
      const { loss, value } = timeSpan(recorder, 'F', { name: 'loss' }, () => {
        const recorded = hold(recordLoss(this.#loss, outputs.value, labels))
        return { loss: recorded, value: takeScalar(tf.clone(recorded.value)) }
      })
      const dy = timeSpan(recorder, 'B', { name: 'loss' }, () =>
        hold(loss.backward(scale, () => undefined)!),
      )
      await outputs.backward(dy, onGradient)
      return await value
    } finally {
      timeSpan(recorder, 'B', { name: 'free' }, () => {
        for (const each of held) each.dispose()
      })
    }
  }

  #record(x: Tensor) {
    const { recompute, tensor, recorder } = this.#options
    const options = { needsInputGradient: false, recorder }
    const sharded = this.#averaging?.recordUnits?.(x, options)
    if (sharded !== undefined) return sharded
    if (recompute) return recordChain(this.layers, x, { ...options, recompute })
    if ((tensor?.size ?? 1) > 1) return recordSegments(this.module, x, options)
    return recordModule(this.module, x, options)
  }

  async #score(parts: Microbatches, part: number): Promise<Score> {
    const held: Tensor[] = []
    const hold = (tensor: Tensor): Tensor => {
      held.push(tensor)
      return tensor
    }
    try {
      const x = hold(parts.inputs(part))
      const labels = hold(parts.labels(part))
      const outputs = hold(await this.#infer(x))
      return await scoreOf(this.#loss, outputs, labels)
    } finally {
      tf.dispose(held)
    }
  }

  async #infer(x: Tensor): Promise<Tensor> {
    if ((this.#options.tensor?.size ?? 1) === 1) return runForward(this.module, x)
    // A recording, as its exchanges are awaited; but not a training pass.
    const recording = await inPass({ training: false, step: this.#steps, row: 0 }, () =>
      recordSegments(this.module, x, { needsInputGradient: false }),
    )
    const outputs = tf.keep(tf.clone(recording.value))
    recording.dispose()
    return outputs
  }

  /** @throws ERR_TSR_UNUSED_PARAMETERS when a parameter got no gradient, which it should have got */
  #checkComplete(gradients: ReadonlyMap<string, Tensor>): void {
    const unused = this.parameters.filter(({ name }) => !gradients.has(name))
    if (unused.length === 0) return
    tf.dispose([...gradients.values()])
    const parameters = unused.map(({ name }) => name).join(', ')
    throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: 0, parameters })
  }

  async #alone<T>(call: string, run: () => Promise<T>): Promise<T> {
    const problem = this.#isDisposed
      ? 'a model that was disposed'
      : this.#running !== undefined && `a model whose ${this.#running}() is under way`
    if (problem !== false) {
      const expected = this.#isDisposed ? 'one that was not disposed' : '`await` before each call'
      throw tsrError('ERR_TSR_ARGUMENT', { name: call, value: problem, expected })
    }
    this.#running = call
    try {
      return await run()
    } finally {
      this.#running = undefined
    }
  }
}
