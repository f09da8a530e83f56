import { argumentError, declareOptions } from '@tsrun/core'
import type { TensorLike } from '@tensorflow/tfjs-core'
import { loadCheckpoint, type LoadedCheckpoint, type LoadOptions } from '../checkpoint/load.ts'
import { saveCheckpoint, type SavedCheckpoint, type SaveOptions } from '../checkpoint/save.ts'
import type { CheckpointState } from '../checkpoint/owners.ts'
import type { Parameter } from '../model/parameter.ts'
import { inPass } from '../model/pass.ts'
import { addTallies, figuresOf, meanOf, noTally, tallyOf } from '../nn/part-loss.ts'
import { factorRule, type Optimizer } from '../optim/optimizer.ts'
import type { DataParallel } from '../parallel/data/data-parallel.ts'
import type { Traffic } from '../parallel/gradients/exchange.ts'
import { evaluationOf, type Evaluation } from '../parallel/pipeline/options.ts'
import type { Pipeline } from '../parallel/pipeline/pipeline.ts'
import type { FullyShard } from '../parallel/zero/fully-shard.ts'
import type { StateMemory } from '../parallel/zero/memory-accounting.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { compareBatches } from './agreement.ts'
import { assemble, disposeModelOf, type Assembly, type TrainableModel } from './assemble.ts'
import { batchOf, checkShare, rowsOf, type AnyBatch } from './batch.ts'
import { setValues, valuesOf } from './callbacks.ts'
import { trainerCalls } from './calls.ts'
import { evaluationData, type EvaluationData, type FitData } from './fit-data.ts'
import { batchRule, type EvaluateOptions, type FitOptions, type FitResult } from './fit-options.ts'
import { fit } from './fit.ts'
import type { Layout } from './layout.ts'
import type { CheckedOptions, TrainerOptions } from './options.ts'

/** The result of `Trainer.step`. All figures except `waited` are the same on all ranks. */
export interface TrainerStep {
  /**
   * The mean loss over the examples of all replicas, or over their labels that are not ignored. The
   * loss is 0 if no example or label counts.
   */
  readonly loss: number
  /** The number of examples in the batches of all replicas. */
  readonly examples: number
  /** The norm of all gradients before clipping. Present with the option `clip`. */
  readonly norm?: number
  /** The milliseconds that this rank waited for averaged gradients after its backward passes. */
  readonly waited: number
}

const readEvaluation = declareOptions({ batch: batchRule })

/**
 * Creates a trainer that distributes a model over a mesh of ranks: data, ZeRO, pipeline, tensor and
 * context parallelism in any combination. An axis of size 1 costs nothing. Each step equals a step of a
 * single process on the batches of all replicas together, even if replicas have different numbers of
 * examples. All ranks must call this function and make the same calls of the trainer. Loads the default
 * backend if none is loaded.
 *
 * @param model - a module, a recipe such as `gpt(...)`, which a pipeline needs, or a model of tf.layers
 *
 * @example
 * const run = await trainer(shardedMLP({ layers: 16 }), { optimizer: new Adam() })
 * for (const batch of batches(mnist({ split: 'train' }), { batch: 256, share: run.share })) {
 *   const { loss } = await run.step(batch)
 * }
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option, or a model that does not fit the mesh;
 *   ERR_TSR_MESH_SHAPE; ERR_TSR_REPLICA when the ranks have different parameters or options; the errors
 *   of `pipeline`, `parallelize`, `contextParallel`, `dataParallel` and `fullyShard`
 */
export async function trainer(
  model: TrainableModel,
  options: TrainerOptions = {},
): Promise<Trainer> {
  return new Trainer(await assemble(model, options))
}

/** Trains a distributed model; created by `trainer()`. */
export class Trainer {
  /** The groups of this rank along the axes of the mesh. */
  readonly layout: Layout
  /**
   * The part of every batch that this rank reads: the index of its replica, and the number of replicas.
   * Pass `share` to `batches`, `dataLoader` or `textBatch`.
   */
  readonly share: readonly [index: number, count: number]
  readonly optimizer: Optimizer | undefined
  readonly #core: Pipeline
  readonly #replica: DataParallel | FullyShard | undefined
  readonly #options: CheckedOptions
  readonly #calls = trainerCalls()
  #steps = 0
  #isCompared = false
  #isDisposed = false

  constructor({ core, replica, layout, options }: Assembly) {
    this.#core = core
    this.#replica = replica
    this.#options = options
    this.layout = layout
    this.share = layout.share
    this.optimizer = options.optimizer
  }

  /** The rank of this process in the mesh. */
  get rank(): number {
    return this.layout.world.rank
  }

  /** The parameters on this rank, in its pipeline stage and its shards of tensor parallel layers. */
  get parameters(): readonly Parameter[] {
    return this.#core.parameters
  }

  /** The buffers on this rank, such as running statistics: see `Module.buffers`. */
  get buffers(): readonly Parameter[] {
    return this.#core.buffers
  }

  /** The parameters that the optimizer updates. With `zero`, this rank's shards. */
  get updated(): readonly Parameter[] {
    return this.#sharded?.shards ?? this.parameters
  }

  /** Whether parameters are sharded, so that no rank has whole ones (`zero: 3`). */
  get isSharded(): boolean {
    return this.#sharded?.stage === 3
  }

  /** The bytes and messages that a step sends to average gradients. Undefined with one replica. */
  get traffic(): Traffic | undefined {
    return this.#replica?.traffic
  }

  /** The bytes of parameters and gradients on this rank. Undefined without `zero`. */
  get memory(): StateMemory | undefined {
    return this.#sharded?.memory
  }

  /** The number of steps so far, including steps before a loaded checkpoint. */
  get steps(): number {
    return this.#steps
  }

  /** The pipeline. Undefined if the mesh has only one stage. */
  get pipeline(): Pipeline | undefined {
    return this.#core.whole === undefined ? this.#core : undefined
  }

  /**
   * Trains on this replica's part of a batch. Replicas may have different numbers of examples, or none.
   * The caller still owns the tensors of the batch.
   *
   * @throws ERR_TSR_ARGUMENT, also if `learningRate` does not return a number >= 0;
   *   ERR_TSR_UNUSED_PARAMETERS in the first step when a trained parameter got no gradient on any rank
   */
  async step(batch: AnyBatch): Promise<TrainerStep> {
    const { learningRate, optimizer } = this.#options
    if (learningRate !== undefined && optimizer !== undefined) {
      const rate = learningRate(this.#steps)
      optimizer.learningRate = factorRule.check(`learningRate(${this.#steps})`, rate)
    }
    checkShare(batch, this.share)
    const own = batchOf(batch)
    const examples = own.size ?? 0
    if (!this.#isCompared) await compareBatches(batch, examples, this.layout, this.#core)
    this.#isCompared = true
    const row = batch.row ?? this.share[0] * examples
    const place = { step: this.#steps, row }
    // Without averaging there is only one replica. Pass an empty list, because the given group may
    // contain all pipeline stages.
    const pass = { training: true, ...place, replicas: [] }
    const result = await this.#calls.run('step', () =>
      inPass(pass, () => this.#core.step(own, place)),
    )
    const totals = result.totals!
    const loss = meanOf(totals)
    this.#steps++
    this.layout.world.reportProgress({ step: this.#steps, loss })
    return {
      loss,
      // Context parallel ranks have the same examples, so divide by their number.
      examples: totals.examples / this.layout.cp.size,
      waited: result.waited ?? 0,
      ...(result.norm !== undefined && { norm: result.norm }),
    }
  }

  /**
   * Evaluates the model by forward passes.
   *
   * @param data - a data set, a batch of this replica, several of them, or a function that makes them
   * @param options - `batch`: for a data set, the number of examples in a batch, over all replicas;
   *   default 1,000
   * @returns figures over all examples of all replicas; the accuracy is NaN unless labels are classes,
   *   or the loss counts correct answers (`countCorrect`)
   * @throws ERR_TSR_ARGUMENT for other data; ERR_TSR_REPLICA for data sets of different sizes
   */
  async evaluate(
    data: AnyBatch | EvaluationData,
    options: Pick<EvaluateOptions, 'batch'> = {},
  ): Promise<Evaluation> {
    const { batch } = readEvaluation(options)
    return await this.#calls.run('evaluate', async () => {
      const all = await evaluationData(this, { data, batch }, 'data')
      let own = noTally
      for await (const batch of all) {
        checkShare(batch, this.share)
        own = addTallies(own, await this.#core.tally(batchOf(batch)))
      }
      const sums = tallyOf(await this.sum(...figuresOf(own)))
      return evaluationOf({ ...sums, examples: sums.examples / this.layout.cp.size })
    })
  }

  /**
   * Computes the model's outputs for inputs without labels, in evaluation mode. All ranks must call this
   * method, and ranks of one replica must pass the same inputs.
   *
   * @param inputs - [rows, ...]: a tensor, which the caller still owns; or a list of rows, each a nested
   *   array of numbers, all of the same shape. If rows are single numbers, pass a tensor
   * @returns the outputs [rows, ...] on each rank, which the caller disposes. With tensor parallelism
   *   (`tp`), they are the last layer's outputs on this rank; with context parallelism (`cp`), inputs
   *   and outputs are this rank's part of the sequences
   *
   * @example
   * const outputs = await run.predict([pixels])
   * const scores = await outputs.data()
   * outputs.dispose()
   * const digit = scores.indexOf(Math.max(...scores))
   *
   * @throws ERR_TSR_ARGUMENT naming the first row that has a different shape from row 0, or a value that
   *   is not a finite number
   */
  async predict(inputs: Tensor | TensorLike): Promise<Tensor> {
    const x = rowsOf(inputs)
    try {
      const { values, shape, dtype } = await this.#calls.run('predict', () =>
        this.#core.infer(x, async (outputs) => ({
          values: await outputs.data(),
          shape: outputs.shape,
          dtype: outputs.dtype,
        })),
      )
      return tf.keep(tf.tensor(values, shape, dtype))
    } finally {
      x.dispose()
    }
  }

  /**
   * Trains on many batches, evaluates and saves at intervals, and can resume from the newest checkpoint:
   * see `FitOptions`.
   *
   * @param data - a data set (set the option `batch`), a loader, an iterable of batches of this replica,
   *   or a function that returns the batch of a step
   */
  async fit(data: FitData, options: FitOptions = {}): Promise<FitResult> {
    return await this.#calls.run('fit', () => fit(this, data, options))
  }

  /**
   * Saves the model, the optimizer and the number of steps: see `saveCheckpoint`.
   *
   * @param options - `data` is the position in the data, or any other JSON value
   */
  async save(
    directory: string,
    options: SaveOptions & { readonly data?: unknown } = {},
  ): Promise<SavedCheckpoint> {
    const { data, ...others } = options
    const state = { ...this.state, step: this.#steps, data }
    return await this.#calls.run('save', () =>
      saveCheckpoint(directory, state, this.layout.world, others),
    )
  }

  /** Loads a checkpoint, which may come from another mesh: see `loadCheckpoint`. */
  async load(directory: string, options: LoadOptions = {}): Promise<LoadedCheckpoint> {
    const loaded = await this.#calls.run('load', () =>
      loadCheckpoint(directory, this.state, this.layout.world, options),
    )
    this.#steps = loaded.step
    return loaded
  }

  /** Sums each number over the replicas, for custom metrics. All ranks must call this method. */
  async sum<const T extends readonly number[]>(...values: T): Promise<{ [K in keyof T]: number }> {
    const { averaged, shard } = this.layout
    if (averaged.size === 1 && shard.size === 1) return values as { [K in keyof T]: number }
    const totals = Float64Array.from(values)
    for (const group of [averaged, shard]) {
      if (group.size > 1) await group.allReduce(totals, { label: 'sums over the replicas' })
    }
    return [...totals] as { [K in keyof T]: number }
  }

  /** Runs `part`, then restores the parameters, buffers, optimizer and number of steps; see `findRate`. */
  async rollBackAfter<T>(part: (optimizer: Optimizer) => Promise<T>): Promise<T> {
    const { optimizer, learningRate } = this.#options
    if (optimizer === undefined || learningRate !== undefined || this.isSharded) {
      throw argumentError(
        'the trainer',
        'one whose state cannot be restored',
        'one with an optimizer, a constant learning rate, and zero at most 2',
      )
    }
    const all = [...this.parameters, ...this.buffers]
    const [values, state] = [await valuesOf(all), await optimizer.state()]
    const [rate, steps] = [optimizer.learningRate, this.#steps]
    try {
      return await part(optimizer)
    } finally {
      setValues(all, values)
      optimizer.dispose()
      optimizer.loadState(state)
      optimizer.learningRate = rate
      this.#steps = steps
    }
  }

  /** Runs `part` while this rank's parameters are whole, also with `zero: 3`. All ranks must call it. */
  async gathered<T>(part: () => T | Promise<T>): Promise<T> {
    await this.#replica?.gather()
    try {
      return await part()
    } finally {
      this.#replica?.release()
    }
  }

  /**
   * Frees the model and all buffers, but not the optimizer. A tf.layers model keeps its weights. Further
   * calls have no effect.
   *
   * @throws ERR_TSR_SHARDED for a model of tf.layers with `zero: 3` outside of `gathered`;
   *   ERR_TSR_ARGUMENT during a call that the script has not awaited
   */
  dispose(): void {
    if (this.#isDisposed) return
    this.#calls.checkEnded()
    disposeModelOf({ core: this.#core, replica: this.#replica })
    this.#isDisposed = true
  }

  /** The same as `dispose`, for `using` and `await using run = await trainer(model)`. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  get #sharded(): Partial<FullyShard> | undefined {
    return this.#replica as Partial<FullyShard> | undefined
  }

  /** This rank's part of the model and of the optimizer state, for checkpoints. */
  get state(): CheckpointState {
    const { optimizer } = this
    const replica = this.#replica
    if (replica !== undefined && 'stateOf' in replica) {
      return { model: replica, ...(optimizer && { optimizer: replica.stateOf(optimizer) }) }
    }
    return { model: this.#core, ...(optimizer && { optimizer }) }
  }
}
