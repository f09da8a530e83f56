import { monotonicNow, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { SpanRecorder } from '@tsrun/telemetry'
import type { Tensor } from '../../backend/tensorflow.ts'
import { summedCrossEntropy } from '../../nn/cross-entropy.ts'
import type { Loss } from '../../nn/loss.ts'
import { disposeModule, type Module } from '../../nn/module.ts'
import type { Parameter } from '../../nn/parameter.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import { StageWorker, type TrainedBatch } from './executor.ts'
import { cutBatch } from './microbatches.ts'
import type { Batch, PipelineModel } from './model.ts'
import { Plan, type ScheduleChoice } from './plan.ts'
import { takesChunks } from './schedule/orders.ts'
import { splitAs, type LayerRange, type Split } from './split-layers.ts'
import { TiedParameters } from './tied-parameters.ts'

export interface PipelineOptions {
  /** A name, or lists of actions of your own: `parseSchedule(text)`, `{ actions }`. Default `1f1b`. */
  readonly schedule?: ScheduleChoice
  /** Stages of each rank with `interleaved` and `looped`; default 2. */
  readonly chunks?: number
  /**
   * How many layers each stage takes, or what each layer costs (see `measureCosts`): then the largest
   * stage is as small as can be. Default: as even as can be.
   */
  readonly split?: Split
  /** Parts that a batch is cut into; default 8. A batch of fewer examples makes fewer. */
  readonly microbatches?: number
  /** Changes the parameters in `step`. */
  readonly optimizer?: Optimizer
  /**
   * Keeps of each micro-batch only the input of a stage from its forward to its backward, which runs
   * the forward again: less memory for a third more time; the gradients are the same bits. Default
   * false.
   */
  readonly recompute?: boolean
  /** The *sum* of the losses of a micro-batch's examples; default: `summedCrossEntropy`. */
  readonly loss?: Loss
  /** Where spans go; default: one of its own, see `Pipeline.recorder`. */
  readonly recorder?: SpanRecorder
}

export interface StepResult {
  /** Mean over the whole batch, the same on every rank. */
  readonly loss: number
  /** Most micro-batches whose activations this rank held at once. */
  readonly peakInFlight: number
}

export interface GradientResult extends StepResult {
  /** Gradients of the mean loss for the parameters of this stage, by name; yours to dispose. */
  readonly gradients: Map<string, Tensor>
}

export interface Evaluation {
  readonly loss: number
  /** Share of right answers, 0 to 1; the same on every rank. */
  readonly accuracy: number
  readonly correct: number
  readonly examples: number
}

/**
 * Cuts a model into as many stages as the group has ranks and trains it as a pipeline: each rank
 * builds its layers only, activations travel from stage to stage, gradients back.
 *
 * The result equals that of a single process, whatever the schedule and the number of micro-batches;
 * with a group of one rank it is a single process. All ranks make the same calls. Parameters of the
 * same name in several stages are one: their gradients are summed.
 *
 * @example
 * const group = await initProcessGroup()
 * const pipe = pipeline(shardedMLP({ layers: 16 }), group, { schedule: '1f1b', microbatches: 8, optimizer })
 * const { loss } = await pipe.step({ inputs, labels })
 *
 * @throws ERR_TSR_STAGES when there are more ranks than layers; ERR_TSR_SCHEDULE when lists of
 *   your own are impossible; ERR_TSR_ARGUMENT
 */
export function pipeline(
  model: PipelineModel,
  group: ProcessGroup,
  options: PipelineOptions = {},
): Pipeline {
  const { schedule: choice = '1f1b', microbatches = 8 } = options
  const chunks = checkChunks(choice, options.chunks)
  const plan = new Plan(choice, group.size, { microbatches, chunks })
  const ranges = splitAs(options.split, model.layers, plan.stages).filter(
    (_, stage) => plan.placement[stage] === group.rank,
  )
  const modules = ranges.map(({ from, to }) => model.slice(from, to))
  return new Pipeline(modules, ranges, group, plan, options)
}

function checkChunks(choice: ScheduleChoice, chunks: number | undefined): number {
  const isChoice = takesChunks(choice)
  const value = chunks ?? (isChoice ? 2 : 1)
  if (Number.isSafeInteger(value) && value >= 1 && (isChoice || chunks === undefined)) return value
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'chunks',
    value,
    expected: "a whole number from 1, with schedule: 'interleaved' or 'looped'",
  })
}

/** One rank's part of a pipeline; made by `pipeline()`. */
export class Pipeline {
  /** The layers of this rank: those of its first chunk, which is all where it has one. */
  readonly module: Module
  /** A module for each chunk. */
  readonly modules: readonly Module[]
  readonly layers: LayerRange
  /** The layers of each chunk. */
  readonly chunks: readonly LayerRange[]
  /** Of all chunks, each name once: chunks that have one of the same name share it. */
  readonly parameters: readonly Parameter[]
  /** Whether this rank reads the inputs. */
  readonly isFirst: boolean
  /** Whether this rank reads the labels. */
  readonly isLast: boolean
  /** Spans of compute, messages and waiting. */
  readonly recorder: SpanRecorder
  readonly #group: ProcessGroup
  readonly #plan: Plan
  readonly #optimizer: Optimizer | undefined
  readonly #worker: StageWorker
  readonly #tied: TiedParameters
  readonly #figures: Float64Array
  /** The rank of the last stage. */
  readonly #lastRank: number
  /** Why the first pass that failed did. */
  #failure: Error | undefined

  constructor(
    modules: readonly Module[],
    chunks: readonly LayerRange[],
    group: ProcessGroup,
    plan: Plan,
    { optimizer, recorder, loss = summedCrossEntropy, recompute = false }: PipelineOptions,
  ) {
    this.module = modules[0]!
    this.modules = modules
    this.layers = chunks[0]!
    this.chunks = chunks
    this.#tied = new TiedParameters(modules, group)
    this.parameters = this.#tied.parameters
    this.#lastRank = plan.placement.at(-1)!
    this.isFirst = group.rank === plan.placement[0]
    this.isLast = group.rank === this.#lastRank
    this.recorder = recorder ?? new SpanRecorder({ rank: group.ranks[group.rank]! })
    this.#group = group
    this.#plan = plan
    this.#optimizer = optimizer
    this.#worker = new StageWorker(
      modules,
      plan.placement,
      { loss, recompute },
      group,
      this.recorder,
    )
    this.#figures = group.alloc('float64', 2)
  }

  /**
   * Runs a batch forward and backward and updates the parameters.
   *
   * @throws ERR_TSR_ARGUMENT without an optimizer, or when the batch is not what it says
   */
  async step(batch: Batch): Promise<StepResult> {
    const optimizer = this.#optimizer
    if (optimizer === undefined) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'optimizer',
        value: 'undefined',
        expected: 'one in the options of pipeline(); forwardBackward() needs none',
      })
    }
    const { gradients, peakInFlight, meanLoss } = await this.#train(batch)
    const shared = this.#share(meanLoss, 0)
    // if the update throws, that is the news
    shared.catch(() => undefined)
    const start = monotonicNow()
    optimizer.step(this.parameters, gradients)
    this.recorder.record('optimizer', start, monotonicNow())
    const [loss] = await shared
    return { loss, peakInFlight }
  }

  /** Runs a batch forward and backward; the parameters stay as they are. */
  async forwardBackward(batch: Batch): Promise<GradientResult> {
    const { gradients, peakInFlight, meanLoss } = await this.#train(batch)
    const [loss] = await this.#share(meanLoss, 0)
    return { loss, gradients, peakInFlight }
  }

  /** Runs a batch of class scores forward only, in at least 4 x ranks parts, and judges it. */
  async evaluate(batch: Batch): Promise<Evaluation> {
    const parts = cutBatch(batch, Math.max(this.#plan.microbatches, 4 * this.#group.size))
    try {
      const sums = await this.#pass(async () => {
        await this.#tied.prepare()
        return await this.#worker.evaluate(parts)
      })
      const [loss, correct] = await this.#share(sums.loss / parts.size, sums.correct)
      return { loss, correct, accuracy: correct / parts.size, examples: parts.size }
    } finally {
      parts.dispose()
    }
  }

  /** Frees the parameters and the buffers. */
  dispose(): void {
    this.#worker.dispose()
    this.#tied.dispose()
    this.#group.free(this.#figures)
    for (const module of this.modules) disposeModule(module)
  }

  async #train(batch: Batch): Promise<TrainedBatch> {
    const parts = cutBatch(batch, this.#plan.microbatches)
    try {
      const { actions } = this.#plan.for(parts.rows.length)
      return await this.#pass(async () => {
        await this.#tied.prepare()
        const trained = await this.#worker.train(actions[this.#group.rank]!, parts)
        await this.#tied.sum(trained.gradients)
        return trained
      })
    } finally {
      parts.dispose()
    }
  }

  /**
   * A pass that fails leaves receives behind that would take the messages of the next one.
   *
   * @throws ERR_TSR_PIPELINE_FAILED after it
   */
  async #pass<T>(run: () => Promise<T>): Promise<T> {
    const { rank, name: group } = this.#group
    if (this.#failure !== undefined) {
      const { message: reason } = this.#failure
      throw tsrError('ERR_TSR_PIPELINE_FAILED', { rank, group, reason }, { cause: this.#failure })
    }
    try {
      return await run()
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error))
      throw error
    }
  }

  /** What the rank of the last stage says, on every rank. */
  async #share(...figures: [number, number]): Promise<[number, number]> {
    if (this.#group.size === 1) return figures
    this.#figures.set(figures)
    await this.#group.broadcast(this.#figures, this.#lastRank, { label: 'loss' })
    return [this.#figures[0]!, this.#figures[1]!]
  }
}
