import { declareOptions, having, type Rules } from '@tsrun/core'
import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import { timeSpan, timeWait, type SpanRecorder } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../../model/parameter.ts'
import { tensorFrom } from '../../backend/host-memory.ts'
import type { ClippedGradients } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { Averages, Replicated } from '../gradients/averaging.ts'
import {
  fillBuckets,
  labelOf,
  planBuckets,
  type Bucket,
  type Traffic,
} from '../gradients/exchange.ts'
import {
  checkedParameters,
  readDataParallelOptions,
  wireBytes,
  type DataParallelOptions,
  type GradientOptions,
  type ModelParameters,
} from '../gradients/options.ts'
import { joinedLoop, type JoinedLoop } from '../gradients/joined.ts'
import { Replica } from '../gradients/replica.ts'
import { broadcastParameters, broadcastState, replicate } from '../gradients/replicas.ts'
import { freeAfterRun } from '../group-buffers.ts'
import { checkGroup } from '../requirements.ts'

/**
 * Enables data parallel training of a model, like torch's DistributedDataParallel (Li et al.,
 * 2020). Every rank of the group has the whole model and a part of each batch. Gradients are
 * averaged while the backward pass runs. All ranks start with the parameters of rank 0.
 *
 * Gradients are sent in buckets. The first step fills buckets in the reverse order of the
 * parameters. Later steps use the order in which rank 0 computed the gradients. If `module` is a
 * pipeline, its `step` now averages gradients over the group.
 *
 * @example
 * const replica = await dataParallel(model, group)
 * const outputs = recordModule(model, x, { needsInputGradient: false })
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const dy = loss.backward(one, () => undefined)!
 * outputs.backward(dy, replica.onGradient)
 * optimizer.step(model.parameters, await replica.gradientViews())
 *
 * @throws ERR_TSR_REPLICA when the ranks have different parameters or options, ERR_TSR_ARGUMENT
 */
export async function dataParallel<M extends Replicated>(
  module: M,
  group: ProcessGroup,
  options: DataParallelOptions = {},
): Promise<DataParallel<M>> {
  checkGroup(group)
  const checked = readDataParallelOptions(options)
  const parameters = checkedParameters(module, checked, group.size)
  const buckets = planBuckets(parameters.trained.toReversed(), checked).map(labelOf)
  const facts = { kind: 'dataParallel', ...checked, buckets }
  const replicas = await replicate(module, parameters, facts, [group])
  const replica = new DataParallel(module, group, parameters, checked, replicas)
  module.averageBy?.(replica)
  return replica
}

/** A rank's replica of a model; made by `dataParallel`. */
export class DataParallel<M extends Replicated = Replicated> extends Replica<M> {
  readonly #group: ProcessGroup
  protected override exchange: AllReduceExchange
  #steps = 0

  constructor(
    module: M,
    group: ProcessGroup,
    parameters: ModelParameters,
    options: GradientOptions,
    replicas: readonly ProcessGroup[],
  ) {
    super(module, [group], parameters, options, replicas, true)
    this.#group = group
    this.exchange = this.#open(parameters.trained.toReversed())
  }

  get updated(): readonly Parameter[] {
    return this.module.parameters
  }

  /** The bytes and collectives that one step sends. */
  get traffic(): Traffic {
    return this.exchange.traffic
  }

  /**
   * Waits for the averaged gradients of this step, for `optimizer.step`. They are the same on all ranks.
   *
   * @param tokens - with `reduction: 'token'`: the number of tokens in this rank's summed loss
   * @throws ERR_TSR_UNUSED_PARAMETERS, ERR_TSR_ARGUMENT; ERR_TSR_REPLICA_ENDED after a failed step or
   *   `dispose`
   */
  async gradients(tokens?: number): Promise<Map<string, Tensor>> {
    const taken = await this.takeGradients(tokens)
    const shapes = new Map(this.replicated.trained.map(({ name, shape }) => [name, shape]))
    return new Map(
      Array.from(taken, ([name, values]) => [name, tensorFrom(values, shapes.get(name)!)]),
    )
  }

  /**
   * Waits for the averaged gradients of this step, like `gradients`, but does not copy them. The arrays
   * are parts of the buckets, which the next backward pass overwrites. Update the parameters first.
   */
  async gradientViews(tokens?: number): Promise<Averages> {
    return await this.takeGradients(tokens)
  }

  update(
    optimizer: Optimizer,
    gradients: ClippedGradients,
    recorder: SpanRecorder | undefined,
  ): Promise<void> {
    timeSpan(recorder, 'optimizer', {}, () => {
      optimizer.step(this.module.parameters, gradients)
    })
    return Promise.resolve()
  }

  /**
   * Runs a training loop that may have fewer steps on some ranks than on others. All ranks call `join`. A
   * rank that has finished takes part in the steps of the other ranks with zero gradients. The summed
   * gradients are divided by the number of ranks that still have data. At the end all ranks get the
   * parameters and the optimizer state of the rank that made the most steps. The loop must not use other
   * collectives over this group, because finished ranks do not call them.
   *
   * @example
   * const loop = async () => {
   *   for (const batch of mine) optimizer.step(model.parameters, await gradientsOf(batch))
   * }
   * await replica.join(loop, { optimizer })
   *
   * @throws ERR_TSR_ARGUMENT; ERR_TSR_REPLICA_ENDED after a failed step or `dispose`
   */
  async join(loop: () => Promise<void>, options: JoinOptions): Promise<void> {
    const { optimizer } = readJoinOptions(options)
    await this.lifetime.step(async () => {
      const joined = joinedLoop(this.#group)
      this.joined = joined
      try {
        await loop()
        const own = this.#steps
        await this.#shadow(joined)
        const steps = await this.#group.allGatherObject(own)
        const root = steps.indexOf(Math.max(...steps))
        const { all, buffers } = this.replicated
        await broadcastParameters([...all, ...buffers], this.#group, root)
        await broadcastState(optimizer, this.#group, root)
      } finally {
        joined.dispose()
        this.joined = undefined
      }
    })
  }

  protected override async take(factor: number, unused: ReadonlySet<string>): Promise<Averages> {
    const order = this.exchange.order()
    const taken = this.exchange.take(factor, unused)
    this.#steps++
    if (this.#steps > 1) return taken
    // Copy the averages, because the buckets that hold them are replaced below.
    for (const [name, values] of taken) taken.set(name, values.slice())
    await this.#reorder(order)
    return taken
  }

  protected override close(): void {
    this.exchange.dispose()
  }

  /** Takes part in the steps of the ranks that still have data, with zero gradients. */
  async #shadow(loop: JoinedLoop): Promise<void> {
    // Drop the gradients of a step that this rank never announced: no rank waits for them.
    if (!loop.isAnnounced()) this.exchange.clear()
    for (;;) {
      loop.announce(false)
      if ((await loop.live()) === 0) return
      await this.finishStep({ loss: 0, count: 0, examples: 0 }, 1)
    }
  }

  /** Rebuilds the buckets after the first step, in the order in which rank 0 computed its gradients. */
  async #reorder(arrivals: readonly string[]): Promise<void> {
    const order = await this.#group.broadcastObject([...arrivals], 0)
    const place = new Map(order.map((name, i) => [name, i]))
    const { trained } = this.replicated
    if (place.size !== trained.length) return
    this.exchange.dispose()
    const sorted = trained.toSorted((a, b) => place.get(a.name)! - place.get(b.name)!)
    this.exchange = this.#open(sorted)
  }

  #open(parameters: readonly Parameter[]): AllReduceExchange {
    const buckets = planBuckets(parameters, this.options)
    return allReduceExchange(this.#group, buckets, this.options)
  }
}

type AllReduceExchange = ReturnType<typeof allReduceExchange>

/** Averages the gradients over a group with all-reduce: every rank gets all of them. */
function allReduceExchange(
  group: ProcessGroup,
  buckets: readonly Bucket[],
  { wire, deterministic }: GradientOptions,
) {
  const elements = buckets.reduce((sum, { length }) => sum + length, 0)
  const traffic = { collectives: buckets.length, bytes: elements * wireBytes(wire) }
  const fillings = buckets.map((bucket, index) => {
    const label = labelOf(bucket, index)
    const gradients = group.alloc('float32', bucket.length)
    /** The 16-bit values that are sent; undefined if the wire format is float32. */
    const encoded = wire === 'float32' ? undefined : group.alloc(wire, bucket.length)
    const op = encoded === undefined ? 'avg' : 'sum'
    const work = group.allReduceInit(encoded ?? gradients, { op, deterministic, label })
    return { bucket, gradients, encoded, work }
  })
  // Exchange buckets after the backward pass, unless it is faster to do so during the pass.
  const isDeferred = fillings.every(({ work }) => work.prefersRun)

  const start = (index: number) => {
    const { gradients, encoded, work } = fillings[index]!
    // Divide before summing, because a sum may exceed 65504, the largest float16.
    if (encoded !== undefined) {
      timeSpan(group.spans, 'reduce', { name: 'to 16 bits', bytes: gradients.byteLength }, () => {
        group.convert(encoded, gradients, 1 / group.size)
      })
    }
    if (!isDeferred) work.start()
  }
  const waitForAll = async (wait: (work: PersistentOperation) => Promise<void>) => {
    await timeWait(group.spans, { name: 'gradients' }, async () => {
      for (const { work } of fillings) await wait(work)
    })
  }
  const filled = fillBuckets(buckets, group, (index) => fillings[index]!.gradients, start)
  return {
    ...filled,
    traffic,

    /** Exchanges the buckets that were deferred until the end of the backward pass. */
    async beforeTotals() {
      if (isDeferred) await waitForAll((work) => work.run())
    },

    finished: () => waitForAll((work) => work.done()),

    /**
     * Ends the step.
     *
     * @returns the averages times `factor`, by parameter name, except for the names in `without`: parts of
     *   the buckets, valid until the first gradient of the next step
     */
    take(factor: number, without: ReadonlySet<string>) {
      const averages = new Map<string, Float32Array>()
      timeSpan(group.spans, 'reduce', { name: 'averages', bytes: traffic.bytes }, () => {
        for (const { bucket, gradients, encoded } of fillings) {
          if (encoded !== undefined) group.convert(gradients, encoded)
          if (factor !== 1) group.convert(gradients, gradients, factor)
          for (const { parameter, offset, length } of bucket.slots) {
            if (without.has(parameter.name)) continue
            averages.set(parameter.name, gradients.subarray(offset, offset + length))
          }
        }
      })
      filled.clear()
      return averages
    },

    /** Frees the buckets as soon as no collective uses them. */
    dispose() {
      for (const { gradients, encoded, work } of fillings) {
        freeAfterRun(work, () => {
          group.free(gradients)
          if (encoded !== undefined) group.free(encoded)
        })
      }
    },
  }
}

/** Options of `join` of data parallel training. */
export interface JoinOptions {
  /** The optimizer that the loop uses. At the end all ranks get the same optimizer state. */
  readonly optimizer: Pick<Optimizer, 'state' | 'loadState' | 'learningRate'>
}

const readJoinOptions = declareOptions({
  optimizer: having<JoinOptions['optimizer']>(
    ['state', 'loadState'],
    'the optimizer of the loop, whose state ranks that run out of data need',
  ),
} satisfies Rules<JoinOptions>)
