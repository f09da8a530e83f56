import { tsrError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../../autograd/recording.ts'
import type { Parameter } from '../../nn/parameter.ts'
import { planBuckets, type BucketSizes } from './buckets.ts'
import {
  checkSizes,
  trainedParameters,
  type DataParallelOptions,
  type Replicated,
} from './options.ts'
import { Reducer, type Traffic } from './reducer.ts'
import { broadcastParameters, checkReplicas } from './replicas.ts'

export interface JoinOptions {
  /** What gradients are divided by: the ranks that still have data (default), or all. */
  readonly divideBy?: 'live' | 'world'
}

/** One replica of a model; see `dataParallel`. */
export interface DataParallel<M extends Replicated = Replicated> {
  readonly module: M
  /** For `backward`: takes the gradients, and sends them off as soon as a bucket is full. */
  readonly onGradient: GradientListener
  /**
   * Whether the next backward pass is the last of this step, true at first. False accumulates its
   * gradients, without communication.
   */
  synchronizes: boolean
  /** What one step sends. */
  readonly traffic: Traffic
  /**
   * Waits for the gradients of this step, the same on all ranks: for `optimizer.step`.
   *
   * @param tokens - with `reduction: 'token'`: how many this rank's loss is the sum of
   * @throws ERR_TSR_UNUSED_PARAMETERS
   */
  gradients(tokens?: number): Promise<Map<string, Tensor>>
  /**
   * Runs a training loop that may be shorter on some ranks than on others: a rank that is through
   * takes part in the steps of the rest, with gradients of zero. In the end all ranks get the
   * parameters of the rank that has made most steps. All ranks call it.
   */
  join(loop: () => Promise<void>, options?: JoinOptions): Promise<void>
  /** Frees the buckets; the model stays. */
  dispose(): void
}

/**
 * Data parallel training (as torch's DistributedDataParallel; Li et al., 2020): every rank of the
 * group has the whole model and a part of each batch, and the gradients are averaged while the
 * backward pass still runs. The parameters begin with the values of rank 0.
 *
 * Gradients travel in buckets, at first in the reverse order of the parameters, from the second step
 * on in the order in which those of rank 0 have come.
 *
 * @example
 * const replica = await dataParallel(model, group)
 * const outputs = recordModule(model, x, { needsInputGradient: false })
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const dy = loss.backward(one, () => undefined)!
 * outputs.backward(dy, replica.onGradient)
 * optimizer.step(model.parameters, await replica.gradients())
 *
 * A pipeline's `step` averages its gradients here from now on, while its backwards run.
 *
 * @throws ERR_TSR_REPLICA when the ranks have other parameters, ERR_TSR_ARGUMENT
 */
export async function dataParallel<M extends Replicated>(
  module: M,
  group: ProcessGroup,
  options: DataParallelOptions = {},
): Promise<DataParallel<M>> {
  const trained = trainedParameters(module, options)
  const sizes = checkSizes(options)
  // a tied parameter is there once
  const all = [...new Set(module.parameters)]
  await checkReplicas(all, group)
  await broadcastParameters(all, group, 0)
  const replica = new Replica(module, group, { trained, sizes, options })
  module.averageBy?.({
    onGradient: replica.onGradient,
    reduction: options.reduction ?? 'mean',
    parameters: module.parameters,
    shard: undefined,
    gradients: (tokens) => replica.gradients(tokens),
    update: async (optimizer, gradients) => {
      await Promise.resolve()
      optimizer.step(module.parameters, gradients)
    },
    gather: () => Promise.resolve(),
    release: () => undefined,
  })
  return replica
}

interface Plan {
  readonly trained: readonly Parameter[]
  readonly sizes: BucketSizes
  readonly options: DataParallelOptions
}

class Replica<M extends Replicated> implements DataParallel<M> {
  readonly module: M
  readonly onGradient: GradientListener
  synchronizes = true
  readonly #group: ProcessGroup
  readonly #plan: Plan
  readonly #trainedNames: ReadonlySet<string>
  #reducer: Reducer
  #isRebuilt = false
  #steps = 0
  #join:
    { readonly divideBy: 'live' | 'world'; live: Float64Array; work: Work | undefined } | undefined

  constructor(module: M, group: ProcessGroup, plan: Plan) {
    this.module = module
    this.#group = group
    this.#plan = plan
    this.#trainedNames = new Set(plan.trained.map(({ name }) => name))
    this.#reducer = this.#open([...plan.trained].reverse())
    this.onGradient = (parameter, gradient) => {
      if (!this.#trainedNames.has(parameter.name)) {
        gradient.dispose()
        return
      }
      this.#announce()
      this.#reducer.add(parameter, gradient, this.synchronizes)
    }
  }

  get traffic(): Traffic {
    return this.#reducer.traffic
  }

  async gradients(tokens?: number): Promise<Map<string, Tensor>> {
    const { unused = 'error', reduction = 'mean' } = this.#plan.options
    if ((reduction === 'token') !== (tokens !== undefined)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'tokens',
        value: tokens ?? 'undefined',
        expected: "a number with reduction: 'token', and only there",
      })
    }
    const { missing } = this.#reducer
    if (missing.length > 0 && unused === 'error') {
      const parameters = missing.join(', ')
      throw tsrError('ERR_TSR_UNUSED_PARAMETERS', { rank: this.#group.rank, parameters })
    }
    this.#announce()
    return await this.#finishStep(tokens ?? 0)
  }

  async join(loop: () => Promise<void>, { divideBy = 'live' }: JoinOptions = {}): Promise<void> {
    const live = this.#group.alloc('float64', 1)
    this.#join = { divideBy, live, work: undefined }
    try {
      await loop()
      const own = this.#steps
      for (;;) {
        live[0] = 0
        await this.#group.allReduce(live, { label: 'ranks that still have data' })
        if (live[0] === 0) break
        const gradients = await this.#finishStep(0)
        for (const gradient of gradients.values()) gradient.dispose()
      }
      const steps = await this.#group.allGatherObject(own)
      const root = steps.indexOf(Math.max(...steps))
      await broadcastParameters([...new Set(this.module.parameters)], this.#group, root)
    } finally {
      this.#group.free(live)
      this.#join = undefined
    }
  }

  dispose(): void {
    this.module.averageBy?.(undefined)
    this.#reducer.dispose()
  }

  /** In a joined loop, before the first bucket of a step: that this rank takes part in it. */
  #announce(): void {
    const join = this.#join
    if (join === undefined || join.work !== undefined || !this.synchronizes) return
    join.live[0] = 1
    join.work = this.#group.allReduce(join.live, { label: 'ranks that still have data' })
  }

  async #finishStep(tokens: number): Promise<Map<string, Tensor>> {
    const { arrivals } = this.#reducer
    this.#reducer.launchRest()
    const factor = await this.#factor(tokens)
    const gradients = await this.#reducer.take(factor)
    this.#steps++
    await this.#rebuild(arrivals)
    return gradients
  }

  /** Whether gradients are averaged as they travel; else their divisor is known too late for it. */
  get #averages(): boolean {
    const { reduction, wire = 'float32' } = this.#plan.options
    return reduction !== 'token' && wire === 'float32' && this.#join === undefined
  }

  /** What the gradients that have travelled are multiplied by. */
  async #factor(tokens: number): Promise<number> {
    const { size } = this.#group
    const join = this.#join
    await join?.work
    if (join !== undefined) join.work = undefined
    if (this.#averages) return 1
    if (this.#plan.options.reduction === 'token') {
      const total = await this.#sum(tokens, 'tokens')
      // no example anywhere, no gradient
      return total === 0 ? 0 : 1 / total
    }
    return 1 / (join?.divideBy === 'live' ? join.live[0]! : size)
  }

  async #sum(value: number, label: string): Promise<number> {
    const total = this.#group.alloc('float64', 1)
    try {
      total[0] = value
      await this.#group.allReduce(total, { label })
      return total[0]
    } finally {
      this.#group.free(total)
    }
  }

  /** After the first step: the buckets in the order in which rank 0 has got its gradients. */
  async #rebuild(arrivals: readonly string[]): Promise<void> {
    if (this.#isRebuilt) return
    this.#isRebuilt = true
    const order = await this.#group.broadcastObject([...arrivals], 0)
    const place = new Map(order.map((name, i) => [name, i]))
    if (place.size !== this.#plan.trained.length) return
    this.#reducer.dispose()
    const sorted = [...this.#plan.trained].sort((a, b) => place.get(a.name)! - place.get(b.name)!)
    this.#reducer = this.#open(sorted)
  }

  #open(parameters: readonly Parameter[]): Reducer {
    const { sizes, options } = this.#plan
    const { wire = 'float32', deterministic = false } = options
    return new Reducer(this.#group, planBuckets(parameters, sizes), {
      wire,
      deterministic,
      averages: () => this.#averages,
    })
  }
}
