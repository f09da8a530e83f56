import { argumentError, monotonicNow, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { SpanRecorder, timeSpan } from '@tsrun/distributed/record'
import { buffersOf, communicates, disposeModule, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { currentPass } from '../../model/pass.ts'
import type { GradientListener } from '../../model/recording.ts'
import { figuresOf, meanOf, noTally, partLoss, tallyOf, type Tally } from '../../nn/part-loss.ts'
import { clipGradients, type ClippedGradients } from '../../optim/clip.ts'
import type { Averaged, Averaging, OwnTotals, Replicated } from '../gradients/averaging.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { stageWorker } from './executor.ts'
import { openCalls, type StageLinks } from './links.ts'
import {
  checkBatch,
  cutBatch,
  divideBatch,
  isEmptyBatch,
  type Batch,
  type BatchPlace,
} from './microbatches.ts'
import {
  evaluationOf,
  type CheckedModelOptions,
  type Evaluation,
  type GradientResult,
  type Plan,
  type StepResult,
} from './options.ts'
import type { LayerRange } from './split.ts'
import { pipelineStage, type PipelineStage } from './stage.ts'

export interface PipelineParts {
  readonly modules: readonly Module[]
  readonly chunks: readonly LayerRange[]
  readonly plan: Plan
  readonly links: StageLinks
  /** The tensor parallel group of a whole model, whose ranks share the layers. */
  readonly tensor?: ProcessGroup | undefined
  readonly recorder: SpanRecorder | undefined
}

/** One rank's part of a pipeline; made by `pipeline()` or `wholeModel()`. */
export class Pipeline implements Replicated {
  /** The module of this rank's first stage, usually its only stage. */
  readonly module: Module
  /** The module of each stage of this rank. */
  readonly modules: readonly Module[]
  /** The module, if it is the whole model; otherwise undefined. */
  readonly whole: Module | undefined
  /** The range of layers of each stage of this rank. */
  readonly chunks: readonly LayerRange[]
  /** The parameters of all stages of this rank. Parameters with the same name are one parameter. */
  readonly parameters: readonly Parameter[]
  /** Whether this rank reads the inputs, because it has the first stage. */
  readonly isFirst: boolean
  /** Whether this rank reads the labels, because it has the last stage. */
  readonly isLast: boolean
  /** Whether the loss counts labels; see `Replicated.countsLabels`. */
  readonly countsLabels: boolean
  /** Records spans. A whole model records them only if the option `recorder` is set. */
  readonly recorder: SpanRecorder
  readonly #spans: SpanRecorder | undefined
  readonly #links: StageLinks
  readonly #plan: Plan
  readonly #options: CheckedModelOptions
  readonly #calls: ReturnType<typeof openCalls>
  readonly #worker: ReturnType<typeof stageWorker>
  readonly #loss: ReturnType<typeof partLoss>
  #averaging: Averaging | undefined
  #steps = 0
  /** Whether the check for unused parameters has run, in the first step with examples. */
  #isChecked = false

  constructor(
    { modules, chunks, plan, links, tensor, recorder }: PipelineParts,
    options: CheckedModelOptions,
  ) {
    const isWhole = links.group === undefined
    this.module = modules[0]!
    this.modules = modules
    this.whole = isWhole ? this.module : undefined
    this.chunks = chunks
    this.parameters = links.parameters
    this.isFirst = links.rank === plan.placement[0]
    this.isLast = links.rank === plan.placement.at(-1)
    this.recorder = recorder ?? new SpanRecorder({ rank: 0, capacity: 1 })
    this.#spans = recorder
    this.#links = links
    this.#plan = plan
    this.#options = options
    this.#calls = openCalls(links.group)
    this.#loss = partLoss(options.loss)
    this.countsLabels = this.#loss.countsLabels
    // A whole model records its own passes, without a stage number.
    const inside = {
      recompute: options.recompute,
      tensor,
      recorder: isWhole ? recorder : undefined,
    }
    const stages = new Map<number, PipelineStage>()
    for (const [stage, rank] of plan.placement.entries()) {
      if (rank !== links.rank) continue
      const at = stages.size
      stages.set(stage, pipelineStage(modules[at]!, this.#loss, isWhole, inside))
    }
    const timed = isWhole ? undefined : recorder
    this.#worker = stageWorker(stages, plan.stages - 1, links.messages, timed)
  }

  /** Whether passes communicate with replicas; see `Module.communicates`. */
  get communicates(): boolean {
    return this.modules.some(communicates)
  }

  /** The buffers of all stages of this rank; see `Module.buffers`. */
  get buffers(): readonly Parameter[] {
    return [...new Set(this.modules.flatMap(buffersOf))]
  }

  /** Compares the ranks, and makes shared parameters equal. If not called, the first pass does this. */
  async prepare(): Promise<void> {
    await this.#calls.alone('prepare', () => this.#pass(() => Promise.resolve()))
  }

  /**
   * Sets how `step` averages gradients over replicas. Called by `dataParallel` and `fullyShard`.
   *
   * @throws ERR_TSR_ARGUMENT when the gradients are already averaged
   */
  averageBy(averaging: Averaging | undefined): void {
    if (averaging !== undefined && this.#averaging !== undefined) {
      throw argumentError(
        'the pipeline or model',
        'one whose gradients are already averaged',
        'one call of dataParallel or fullyShard, over all replicas',
      )
    }
    this.#averaging = averaging
  }

  /**
   * Runs a batch forward and backward, and updates the parameters. After `dataParallel(pipe, group)`
   * or `fullyShard(pipe, group)`, each replica passes its part of the batch; gradients are averaged
   * during the backward passes. With `reduction: 'token'` the batch may be empty.
   *
   * @throws ERR_TSR_ARGUMENT without an optimizer, when the batch does not have the size that it
   *   declares, or after `dispose`; ERR_TSR_UNUSED_PARAMETERS from the first step, when no rank
   *   used a trained parameter; ERR_TSR_REPLICA from the first call, when ranks have different
   *   options; ERR_TSR_PIPELINE_BUSY (ERR_TSR_ARGUMENT for a whole model) during another call on the
   *   group; ERR_TSR_PIPELINE_FAILED after a failed pass
   */
  async step(
    batch: Batch,
    place: BatchPlace = { step: this.#steps++, row: 0 },
  ): Promise<StepResult> {
    const optimizer = this.#optimizer()
    return await this.#calls.alone('step', async () => {
      const averaging = this.#averaging
      const { gradients, peakInFlight, own, scale } = await this.#train(batch, place, averaging)
      const computed = monotonicNow()
      const averaged = await averaging?.average(own, scale)
      const waited = monotonicNow() - computed
      const taken = averaged?.gradients ?? gradients
      const totals = averaged?.totals ?? own
      this.#loss.adopt(totals.found)
      await this.#checkUsed(taken, averaged, totals.examples)
      const norm = await this.#clip(taken)
      if (averaging !== undefined) await averaging.update(optimizer, taken, this.#spans)
      else {
        timeSpan(this.#spans, 'optimizer', {}, () => {
          optimizer.step(this.parameters, taken)
        })
      }
      const loss = meanOf(own)
      return { loss, peakInFlight, waited, totals, ...(norm !== undefined && { norm }) }
    })
  }

  /**
   * Runs a batch forward and backward, without updating the parameters.
   *
   * @param onGradient - takes ownership of each gradient as soon as it is complete, during the last
   *   backward pass of its stage. For example, `replica.onGradient` of `dataParallel` averages
   *   gradients while the pass runs. With `reduction: 'token'`, it gets the gradients of the summed
   *   loss; pass the count to `replica.gradients(count)`. Default: the result contains the gradients
   */
  async forwardBackward(batch: Batch, onGradient?: GradientListener): Promise<GradientResult> {
    return await this.#calls.alone('forwardBackward', async () => {
      const place = { step: this.#steps++, row: 0 }
      const trained = await this.#train(batch, place, undefined, onGradient)
      const { gradients, peakInFlight, own } = trained
      return { loss: meanOf(own), gradients, peakInFlight }
    })
  }

  /**
   * Evaluates a batch with forward passes only. The pipeline divides the batch into at least 4
   * micro-batches per rank; a whole model divides it as in `step`. The accuracy is NaN unless the
   * labels are classes or the loss counts correct answers.
   */
  async evaluate(batch: Batch): Promise<Evaluation> {
    return evaluationOf(await this.tally(batch))
  }

  /** Evaluates a batch and returns sums, the same on all ranks, to add over batches and replicas. */
  async tally(batch: Batch): Promise<Tally> {
    return await this.#calls.alone('evaluate', async () => {
      if (isEmptyBatch(batch)) return await this.#pass(() => Promise.resolve(noTally))
      const count = Math.max(this.#plan.microbatches, this.whole ? 1 : 4 * this.#links.group!.size)
      checkBatch(batch, this)
      const parts = divideBatch(batch, count)
      try {
        const sums = await this.#pass(() => this.#worker.evaluate(parts))
        return tallyOf(await this.#links.tell(figuresOf(sums)))
      } finally {
        parts.dispose()
      }
    })
  }

  /**
   * Runs inputs through all stages without labels, for example to generate text.
   *
   * @param inputs - with the same shape on all ranks; only the first stage reads the values
   * @param read - called with the outputs on the rank of the last stage; the outputs are disposed
   *   when `read` has settled
   * @returns the result of `read`, on all ranks. With several stages it must be an object that
   *   `broadcastObject` can send
   */
  async infer<T>(inputs: Tensor, read: (outputs: Tensor) => T | Promise<T>): Promise<T> {
    return await this.#calls.alone('infer', async () => {
      // Pass the inputs as labels too: `cutBatch` requires labels, but no stage reads them here.
      const parts = cutBatch({ inputs, labels: inputs }, 1)
      try {
        return await this.#pass(async () => {
          let result: T | undefined
          await this.#worker.infer(parts, async (_stage, outputs) => {
            result = await read(outputs)
          })
          return await this.#links.share(result as T)
        })
      } finally {
        parts.dispose()
      }
    })
  }

  /**
   * Frees the parameters and buffers. A second call does nothing.
   *
   * @throws ERR_TSR_PIPELINE_BUSY, without freeing anything, while a call is in progress
   */
  dispose(): void {
    if (!this.#calls.end()) return
    this.#worker.dispose()
    this.#links.dispose()
    for (const module of this.modules) disposeModule(module)
  }

  async #train(
    batch: Batch,
    place: BatchPlace,
    averaging: Averaging | undefined,
    onGradient = averaging?.onGradient,
  ): Promise<Trained> {
    const byToken = averaging?.reduction === 'token' ? averaging : undefined
    const isSummed = onGradient !== undefined && this.#averaging?.reduction === 'token'
    const scaleFor = async (count: number) =>
      this.isLast ? ((await byToken?.scaleFor(count)) ?? 1) : 1
    // Check the batch before any message is sent: the pipeline then survives an invalid batch.
    if (!isEmptyBatch(batch)) checkBatch(batch, this)
    const communicate = await this.#calls.pass(() => this.#links.compare())
    const byUnit = this.whole !== undefined && averaging?.recordUnits !== undefined
    // Replicas whose passes communicate must run equally many passes.
    const fill = byUnit || (this.#averaging !== undefined && communicate)
    if (byToken !== undefined && isEmptyBatch(batch) && !fill) {
      return await this.#pass(async () => {
        const [scale = 1] = await this.#links.tell([await scaleFor(0)])
        return { gradients: new Map<string, Tensor>(), peakInFlight: 0, own: noTally, scale }
      })
    }
    const parts = timeSpan(this.#spans, 'batch', {}, () =>
      divideBatch(batch, this.#plan.microbatches, fill),
    )
    try {
      const { actions } = this.#plan.for(parts.rows.length)
      const run = async (): Promise<Trained> => {
        // The last stage needs the scale of the loss before its first pass.
        const counted = this.isLast ? await this.#loss.count(parts) : 0
        const first = await scaleFor(counted)
        const { gradients, peakInFlight, ...trained } = await this.#worker.train(
          actions[this.#links.rank]!,
          parts,
          {
            place,
            replicas: this.#averaging?.replicas ?? currentPass()?.replicas,
            scale: isSummed ? first : counted === 0 ? 0 : 1 / counted,
            isShared: this.#links.isShared,
            averaging: this.whole === undefined ? undefined : averaging,
            onGradient:
              this.whole === undefined || averaging === undefined ? onGradient : undefined,
          },
        )
        await this.#links.sumShared(gradients)
        for (const parameter of onGradient === undefined ? [] : this.parameters) {
          const gradient = gradients.get(parameter.name)
          gradients.delete(parameter.name)
          if (gradient !== undefined) onGradient!(parameter, gradient)
        }
        const code = FOUND.indexOf(this.#loss.found())
        const told = await this.#links.tell([trained.loss, counted, code, first])
        const [loss, count, found, scale] = told as [number, number, number, number]
        const own = { loss, count, examples: parts.size, found: FOUND[found] }
        return { gradients, peakInFlight, own, scale }
      }
      return await this.#pass(run, byUnit)
    } catch (error) {
      // A whole model exchanges no messages, so it stays usable after a failed pass.
      if (this.whole !== undefined) {
        this.#worker.abandon()
        averaging?.abandon(error)
      }
      throw error
    } finally {
      parts.dispose()
    }
  }

  /** @param byUnit - whether the pass itself unshards the parameters of one unit at a time */
  async #pass<T>(run: () => Promise<T>, byUnit = false): Promise<T> {
    return await this.#calls.pass(async () => {
      const averaging = byUnit ? undefined : this.#averaging
      try {
        await this.#links.compare()
        await this.#links.tie()
        await averaging?.gather()
        return await run()
      } finally {
        averaging?.release()
      }
    })
  }

  async #checkUsed(gradients: ClippedGradients, averaged: Averaged | undefined, examples: number) {
    if (this.#isChecked || examples === 0) return
    if (this.#options.unused === 'error') {
      const missing = this.parameters.filter(({ name }) => !gradients.has(name))
      // A replica that computes no totals has checked for unused parameters itself.
      const own = averaged === undefined ? missing.map(({ name }) => name) : averaged.totals?.unused
      const all = new Set((await this.#links.gather([...(own ?? [])])).flat())
      if (all.size > 0) {
        if (averaged === undefined) tf.dispose([...(gradients.values() as Iterable<Tensor>)])
        const group = this.#links.group ?? this.#averaging?.axes[0]
        const facts = { rank: group?.ranks[group.rank] ?? 0, parameters: [...all].join(', ') }
        throw tsrError('ERR_TSR_UNUSED_PARAMETERS', facts)
      }
    }
    this.#isChecked = true
  }

  async #clip(gradients: ClippedGradients) {
    const { clip } = this.#options
    if (clip === undefined) return undefined
    const { updated = this.parameters, shard } = this.#averaging ?? {}
    const { group: pipeline } = this.#links
    const groups = { ...(pipeline && { pipeline }), ...(shard && { shard }) }
    return await clipGradients(updated, gradients, { ...clip, ...groups })
  }

  #optimizer() {
    const { optimizer } = this.#options
    if (optimizer !== undefined) return optimizer
    const expected = 'an optimizer in the options; forwardBackward() needs none'
    throw argumentError('optimizer', 'undefined', expected)
  }
}

/** The reductions of a loss. A message contains the index in this list. */
const FOUND = [undefined, 'mean', 'sum'] as const

interface Trained {
  readonly gradients: Map<string, Tensor>
  readonly peakInFlight: number
  /** The contribution of this replica to the totals of the step. */
  readonly own: OwnTotals
  /** With `reduction: 'token'`: the factor of the loss in the backward passes. */
  readonly scale: number
}
