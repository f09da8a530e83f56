import type { ProcessGroup } from '@tsrun/distributed'
import { SpanRecorder, timeSpan } from '@tsrun/telemetry'
import { buffersOf, disposeModule, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener } from '../../model/recording.ts'
import { summed } from '../../nn/summed-loss.ts'
import type { Averaging } from '../gradients/averaging.ts'
import { finishStep, optimizerFor, replaceAveraging } from '../gradients/finish-step.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import { checkRecipe, type PipelineModel } from '../recipe.ts'
import { checkGroup } from '../requirements.ts'
import { Calls } from './calls.ts'
import { compareRanks, describeOptions, type RankFacts, explainSizes } from './compare-ranks.ts'
import { StageWorker, type TrainedBatch } from './executor.ts'
import { cutBatch, isEmptyBatch, type Batch, type BatchPlace } from './microbatches.ts'
import {
  noExamples,
  readPipelineOptions,
  type CheckedOptions,
  type Evaluation,
  type GradientResult,
  type PipelineOptions,
  type StepResult,
} from './options.ts'
import { Plan } from './plan.ts'
import { splitAs, type LayerRange } from './split.ts'
import type { GradientPlan } from './stage.ts'
import { TiedParameters } from './tied-parameters.ts'

/**
 * Divides a model into stages and trains it as a pipeline: each rank builds only its own layers,
 * activations travel from stage to stage, and gradients back.
 *
 * The result equals that of a single process with any schedule and any number of micro-batches. All
 * ranks make the same calls. Parameters with the same name in several stages are one parameter: their
 * gradients are summed.
 *
 * @example
 * const group = await initProcessGroup()
 * const pipe = pipeline(shardedMLP({ layers: 16 }), group, { schedule: '1f1b', microbatches: 8, optimizer })
 * const { loss } = await pipe.step({ inputs, labels })
 *
 * @throws ERR_TSR_STAGES when there are more stages than layers; ERR_TSR_SCHEDULE when your own lists of
 *   actions are impossible; ERR_TSR_ARGUMENT
 */
export function pipeline(
  model: PipelineModel,
  group: ProcessGroup,
  options: PipelineOptions = {},
): Pipeline {
  checkRecipe(model)
  checkGroup(group)
  const checked = readPipelineOptions(options)
  const plan = new Plan(checked.schedule, group.size, checked)
  const split = splitAs(checked.split, model.layers, plan.stages)
  return new Pipeline(model, split, group, plan, checked)
}

/** One rank's part of a pipeline; made by `pipeline()`. */
export class Pipeline {
  /** The layers of this rank; if it has several chunks, those of the first. */
  readonly module: Module
  /** The module of each chunk. */
  readonly modules: readonly Module[]
  readonly layers: LayerRange
  /** The layers of each chunk. */
  readonly chunks: readonly LayerRange[]
  /** The parameters of all chunks. Those with the same name are one parameter. */
  readonly parameters: readonly Parameter[]
  /** Whether this rank reads the inputs. */
  readonly isFirst: boolean
  /** Whether this rank reads the labels. */
  readonly isLast: boolean
  /** The spans of computations, messages and waiting. */
  readonly recorder: SpanRecorder
  readonly #group: ProcessGroup
  readonly #plan: Plan
  readonly #options: CheckedOptions
  readonly #calls: Calls
  readonly #worker: StageWorker
  readonly #tied: TiedParameters
  readonly #figures: Float64Array
  /** The rank of the last stage. */
  readonly #lastRank: number
  #averaging: Averaging | undefined
  #steps = 0
  /** The facts that this rank tells the others before the first pass. */
  readonly #describe: () => RankFacts
  /** The facts of all ranks, after the first pass. */
  #told: readonly RankFacts[] | undefined

  /** @param split - the layers of all stages */
  constructor(
    model: PipelineModel,
    split: readonly LayerRange[],
    group: ProcessGroup,
    plan: Plan,
    options: CheckedOptions,
  ) {
    const { recorder, recompute } = options
    // micro-batches of any size add up to the batch only as sums
    const loss = summed(options.loss)
    const chunks = split.filter((_, stage) => plan.placement[stage] === group.rank)
    const modules = chunks.map(({ from, to }) => model.slice(from, to))
    this.module = modules[0]!
    this.modules = modules
    this.layers = chunks[0]!
    this.chunks = chunks
    this.#tied = new TiedParameters(modules, group)
    this.parameters = this.#tied.parameters
    this.#lastRank = plan.placement.at(-1)!
    this.isFirst = group.rank === plan.placement[0]
    this.isLast = group.rank === this.#lastRank
    this.recorder = recorder ?? group.spans ?? new SpanRecorder({ rank: group.ranks[group.rank]! })
    this.#group = group
    this.#plan = plan
    this.#options = options
    this.#calls = new Calls(group)
    this.#worker = new StageWorker(
      modules,
      plan.placement,
      { loss, recompute },
      group,
      this.recorder,
    )
    this.#figures = group.alloc('float64', 2)
    this.#describe = () => ({
      options: describeOptions(plan, split, options),
      search: model.search?.(),
      parameters: this.parameters.map(({ name, shape }) => ({ name, shape })),
    })
  }

  /** The buffers of all chunks: see `Module.buffers`. */
  get buffers(): readonly Parameter[] {
    return [...new Set(this.modules.flatMap(buffersOf))]
  }

  /** Called by `dataParallel` and `fullyShard`: how `step` averages gradients over replicas. */
  averageBy(averaging: Averaging | undefined): void {
    this.#averaging = replaceAveraging(this.#averaging, averaging, 'the pipeline')
  }

  /**
   * Runs a batch forward and backward and updates the parameters. After `dataParallel(pipe, group)` or
   * `fullyShard(pipe, group)` the batch is this replica's part, and the gradients are averaged over that
   * group while the backward passes run.
   *
   * @throws ERR_TSR_ARGUMENT without an optimizer, when the batch does not have its `size`, or after
   *   `dispose`; ERR_TSR_REPLICA from the first call, when the ranks have different options;
   *   ERR_TSR_PIPELINE_BUSY while another call is under way over the group; ERR_TSR_PIPELINE_FAILED
   *   after a call whose passes have failed
   */
  async step(
    batch: Batch,
    place: BatchPlace = { step: this.#steps++, row: 0 },
  ): Promise<StepResult> {
    const { clip } = this.#options
    const optimizer = optimizerFor(this.#options.optimizer, 'the options of pipeline()')
    return await this.#calls.alone('step', async () => {
      const averaging = this.#averaging
      const sumScale = averaging?.reduction === 'token' ? averaging.scale : undefined
      const trained = await this.#train(batch, averaging?.onGradient, sumScale, place)
      const { gradients, peakInFlight, examples } = trained
      const shared = this.#share(trained.loss / examples, 0)
      // an error of the update takes precedence over one of the exchange of losses
      shared.catch(() => undefined)
      const { parameters, recorder } = this
      const finished = await finishStep({
        ...{ parameters, optimizer, averaging, gradients, recorder },
        own: { loss: 0, count: examples, examples },
        clip: clip && { ...clip, pipeline: this.#group },
      })
      const [loss] = await shared
      const { waited, norm } = finished
      return { loss, peakInFlight, waited, ...(norm !== undefined && { norm }) }
    })
  }

  /**
   * Runs a batch forward and backward without updating the parameters.
   *
   * @param onGradient - takes each gradient, which it owns, as soon as it is complete, in the last
   *   backward pass of its stage: for example `replica.onGradient` of `dataParallel`, which averages it
   *   meanwhile. Default: the gradients are in the result.
   */
  async forwardBackward(batch: Batch, onGradient?: GradientListener): Promise<GradientResult> {
    return await this.#calls.alone('forwardBackward', async () => {
      const { gradients, peakInFlight, ...sum } = await this.#train(batch, onGradient)
      const [loss] = await this.#share(sum.loss / sum.examples, 0)
      return { loss, gradients, peakInFlight }
    })
  }

  /**
   * Evaluates a batch: runs it forward only, in at least 4 x ranks parts. The accuracy is NaN unless
   * labels are those of classes, or the loss counts right answers.
   */
  async evaluate(batch: Batch): Promise<Evaluation> {
    return await this.#calls.alone('evaluate', async () => {
      if (isEmptyBatch(batch)) return await this.#pass(() => Promise.resolve(noExamples))
      const parts = cutBatch(batch, Math.max(this.#plan.microbatches, 4 * this.#group.size), this)
      try {
        const sums = await this.#pass(() => this.#worker.evaluate(parts), parts.size)
        const [loss, correct] = await this.#share(sums.loss / parts.size, sums.correct)
        return { loss, correct, accuracy: correct / parts.size, examples: parts.size }
      } finally {
        parts.dispose()
      }
    })
  }

  /**
   * Runs inputs forward through all stages, for outputs that are not class scores, or without labels:
   * for example to generate text.
   *
   * @param inputs - of one shape on all ranks; the first stage reads their values
   * @param read - called on the rank of the last stage with the outputs, which are disposed after it
   * @returns what `read` has returned, on all ranks: anything that `broadcastObject` sends
   */
  async infer<T>(inputs: Tensor, read: (outputs: Tensor) => T | Promise<T>): Promise<T> {
    return await this.#calls.alone('infer', async () => {
      // nothing reads labels
      const parts = cutBatch({ inputs, labels: inputs }, 1, { isFirst: true, isLast: false })
      try {
        return await this.#pass(async () => {
          let result: T | undefined
          await this.#worker.infer(parts, async (_stage, outputs) => {
            result = await read(outputs)
          })
          return await this.#group.broadcastObject(result as T, this.#lastRank, {
            label: 'outputs',
          })
        })
      } finally {
        parts.dispose()
      }
    })
  }

  /**
   * Frees the parameters and the buffers. A second call does nothing.
   *
   * @throws ERR_TSR_PIPELINE_BUSY while a call is under way, which goes on; nothing is freed
   */
  dispose(): void {
    if (!this.#calls.end()) return
    this.#worker.dispose()
    this.#tied.dispose()
    this.#group.free(this.#figures)
    for (const module of this.modules) disposeModule(module)
  }

  /** @param sumScale - the factor of the summed loss whose gradients are wanted instead of the mean's */
  async #train(
    batch: Batch,
    onGradient: GradientListener | undefined,
    sumScale?: number,
    place: BatchPlace = { step: this.#steps, row: 0 },
  ): Promise<TrainedBatch & { readonly examples: number }> {
    if (sumScale !== undefined && isEmptyBatch(batch)) {
      const nothing = {
        loss: 0,
        gradients: new Map<string, Tensor>(),
        peakInFlight: 0,
        examples: 0,
      }
      return await this.#pass(() => Promise.resolve(nothing))
    }
    const parts = timeSpan(this.recorder, 'batch', {}, () =>
      cutBatch(batch, this.#plan.microbatches, this),
    )
    const plan: GradientPlan = {
      scale: sumScale ?? 1 / parts.size,
      place,
      isShared: (name) => this.#tied.isShared(name),
      ...(onGradient !== undefined && { onGradient }),
    }
    try {
      const { actions } = this.#plan.for(parts.rows.length)
      return await this.#pass(async () => {
        const trained = await this.#worker.train(actions[this.#group.rank]!, parts, plan)
        const { gradients } = trained
        await this.#tied.sum(gradients)
        for (const parameter of onGradient === undefined ? [] : this.parameters) {
          const gradient = gradients.get(parameter.name)
          gradients.delete(parameter.name)
          if (gradient !== undefined) onGradient!(parameter, gradient)
        }
        return { ...trained, examples: parts.size }
      }, parts.size)
    } finally {
      parts.dispose()
    }
  }

  /** @param examples - the number of them on this rank, if it is the same on all ranks */
  async #pass<T>(run: () => Promise<T>, examples?: number): Promise<T> {
    return await this.#calls.pass(async () => {
      try {
        this.#told ??= await compareRanks(this.#describe(), this.#group)
        await this.#averaging?.gather()
        await this.#tied.prepare(this.#told)
        return await run()
      } catch (error) {
        throw examples === undefined ? error : explainSizes(error, examples)
      } finally {
        this.#averaging?.release()
      }
    })
  }

  /** Gives all ranks the figures of the rank with the last stage. */
  async #share(...figures: [number, number]): Promise<[number, number]> {
    if (this.#group.size === 1) return figures
    this.#figures.set(figures)
    await this.#group.broadcast(this.#figures, this.#lastRank, { label: 'loss' })
    return [this.#figures[0]!, this.#figures[1]!]
  }
}
