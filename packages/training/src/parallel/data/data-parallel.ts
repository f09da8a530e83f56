import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/telemetry'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener } from '../../model/recording.ts'
import { tensorFrom } from '../../backend/host-memory.ts'
import { buffersOf } from '../../model/module.ts'
import type { Replicated } from '../gradients/averaging.ts'
import { labelOf, planBuckets } from '../gradients/buckets.ts'
import type { Traffic } from '../gradients/exchange.ts'
import { SharedBuffers } from '../gradients/shared-buffers.ts'
import { Lifetime } from '../gradients/lifetime.ts'
import { listenerOf } from '../gradients/listener.ts'
import {
  checkTokens,
  checkTrained,
  parametersOf,
  readDataParallelOptions,
  type DataParallelOptions,
  type GradientOptions,
  type ModelParameters,
} from '../gradients/options.ts'
import {
  broadcastParameters,
  broadcastState,
  compareFacts,
  markReplicated,
} from '../gradients/replicas.ts'
import {
  checkUsed,
  factorOf,
  powerOfTwoNear,
  TotalsSum,
  type StepTotals,
} from '../gradients/step-totals.ts'
import { checkGroup } from '../requirements.ts'
import { AllReduceExchange, type TakenGradient } from './all-reduce.ts'
import { JoinedLoop, readJoinOptions, type JoinOptions } from './join.ts'

/** One replica of a model: see `dataParallel`. */
export interface DataParallel<M extends Replicated = Replicated> {
  readonly module: M
  /**
   * The listener for `backward`: takes the gradients, and sends a bucket as soon as it is full. Its
   * `memory` lets a pass write them into the buckets itself.
   *
   * @throws ERR_TSR_GRADIENT_TWICE; ERR_TSR_ARGUMENT when a gradient does not have the shape of its
   *   parameter, and before `gradients` has ended; ERR_TSR_SYNC_READ on webgpu; ERR_TSR_REPLICA_ENDED
   *   after a step that has failed, and after `dispose`
   */
  readonly onGradient: GradientListener
  /**
   * Whether the next backward pass is the last one of this step; true at first. While it is false,
   * gradients are accumulated without communication.
   */
  synchronizes: boolean
  /** What one step sends. */
  readonly traffic: Traffic
  /**
   * Waits for the averaged gradients of this step, the same on all ranks, for `optimizer.step`.
   *
   * @param tokens - with `reduction: 'token'`: the number of tokens that this rank's loss is the sum of
   * @throws ERR_TSR_UNUSED_PARAMETERS, ERR_TSR_ARGUMENT; ERR_TSR_REPLICA_ENDED after a step that has
   *   failed, and after `dispose`
   */
  gradients(tokens?: number): Promise<Map<string, Tensor>>
  /**
   * As `gradients`, without a copy: arrays in the memory of the buckets, for an optimizer that updates
   * the parameters before the next backward pass begins, which overwrites them.
   */
  gradientViews(tokens?: number): Promise<ReadonlyMap<string, Float32Array>>
  /**
   * Runs a training loop that may have fewer steps on some ranks than on others. A rank that has
   * finished takes part in the steps of the others with gradients of zero. In the end all ranks get the
   * parameters, and the state of the optimizer, of the rank that has made the most steps. All ranks
   * call it. The loop must not use other collectives over this group, because ranks that have finished
   * do not call them.
   *
   * @example
   * const loop = async () => {
   *   for (const batch of mine) optimizer.step(model.parameters, await gradientsOf(batch))
   * }
   * await replica.join(loop, { optimizer })
   *
   * @throws ERR_TSR_ARGUMENT; ERR_TSR_REPLICA_ENDED after a step that has failed, and after `dispose`
   */
  join(loop: () => Promise<void>, options: JoinOptions): Promise<void>
  /** Frees the buckets, but not the model. */
  dispose(): void
}

/**
 * Data parallel training (like torch's DistributedDataParallel; Li et al., 2020): every rank of the
 * group has the whole model and a part of each batch, and the gradients are averaged while the
 * backward pass still runs. All ranks start with the parameters of rank 0.
 *
 * Gradients travel in buckets: in the first step in the reverse order of the parameters, and from the
 * second step on in the order in which rank 0 got them. From now on the `step` of a pipeline averages
 * its gradients here, while its backward passes run.
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
  const { frozen, ...checked } = readDataParallelOptions(options)
  const parameters = parametersOf(module, { frozen })
  const { all, trained, buffers: own } = parameters
  const buckets = planBuckets(trained.toReversed(), checked).map(labelOf)
  await compareFacts(parameters, { kind: 'dataParallel', ...checked, buckets }, group)
  checkTrained(module, parameters)
  await broadcastParameters([...all, ...own], group, 0)
  markReplicated(all, true)
  const replica = new Replica(module, group, parameters, { frozen, ...checked })
  module.averageBy?.({
    onGradient: replica.onGradient,
    reduction: checked.reduction,
    parameters: module.parameters,
    shard: undefined,
    get scale() {
      return replica.scale
    },
    gradients: (tokens, loss) => replica.average(tokens, loss),
    get totals() {
      return replica.totals
    },
    abandon: (error) => {
      replica.abandon(error)
    },
    update: (optimizer, gradients, recorder) => {
      timeSpan(recorder, 'optimizer', {}, () => {
        optimizer.step(module.parameters, gradients)
      })
      return Promise.resolve()
    },
    get synchronizes() {
      return replica.synchronizes
    },
    set synchronizes(isLast) {
      replica.synchronizes = isLast
    },
    gather: () => Promise.resolve(),
    release: () => undefined,
  })
  return replica
}

interface Joined {
  readonly loop: JoinedLoop
  readonly divideBy: 'live' | 'world'
}

class Replica<M extends Replicated> implements DataParallel<M> {
  readonly module: M
  readonly onGradient: GradientListener
  synchronizes = true
  totals: StepTotals | undefined
  /** See `Averaging`. */
  scale = 1
  /** The number of steps that have failed before a gradient was sent. */
  #abandoned = 0
  readonly #group: ProcessGroup
  readonly #trained: readonly Parameter[]
  readonly #buffers: SharedBuffers
  readonly #options: GradientOptions
  readonly #lifetime: Lifetime
  readonly #sum: TotalsSum
  #exchange: AllReduceExchange
  #isReordered = false
  #steps = 0
  #joined: Joined | undefined

  constructor(
    module: M,
    group: ProcessGroup,
    { trained, buffers }: ModelParameters,
    options: GradientOptions,
  ) {
    this.module = module
    this.#group = group
    this.#trained = trained
    this.#buffers = new SharedBuffers(buffers)
    this.#options = options
    this.#lifetime = new Lifetime(group)
    this.#exchange = this.#open(trained.toReversed())
    this.#sum = new TotalsSum([group], options, trained.length)
    this.onGradient = listenerOf({
      lifetime: this.#lifetime,
      keepsBuckets: true,
      exchange: () => this.#exchange,
      synchronizes: () => this.synchronizes,
      checkPass: () => {
        this.#checkPass()
      },
    })
  }

  get traffic(): Traffic {
    return this.#exchange.traffic
  }

  async gradients(tokens?: number): Promise<Map<string, Tensor>> {
    const taken = await this.#take(tokens)
    return new Map([...taken].map(([name, { values, shape }]) => [name, tensorFrom(values, shape)]))
  }

  async gradientViews(tokens?: number): Promise<ReadonlyMap<string, Float32Array>> {
    return viewsOf(await this.#take(tokens))
  }

  /** For a trainer that has applied `scale`. */
  async average(tokens?: number, loss?: number): Promise<ReadonlyMap<string, Float32Array>> {
    return viewsOf(await this.#take(tokens, loss, this.scale))
  }

  abandon(error: unknown): void {
    if (this.#exchange.abandon()) this.#abandoned++
    else this.#lifetime.fail(error)
  }

  async join(loop: () => Promise<void>, options: JoinOptions): Promise<void> {
    const { optimizer, divideBy } = readJoinOptions(options)
    await this.#lifetime.step(async () => {
      const joined = { divideBy, loop: new JoinedLoop(this.#group) }
      this.#joined = joined
      try {
        await loop()
        const own = this.#steps
        await this.#shadow(joined.loop)
        const steps = await this.#group.allGatherObject(own)
        const root = steps.indexOf(Math.max(...steps))
        const all = [...new Set(this.module.parameters), ...buffersOf(this.module)]
        await broadcastParameters(all, this.#group, root)
        await broadcastState(optimizer, this.#group, root)
      } finally {
        joined.loop.dispose()
        this.#joined = undefined
      }
    })
  }

  dispose(): void {
    if (!this.#lifetime.dispose()) return
    this.module.averageBy?.(undefined)
    this.#exchange.dispose()
    this.#sum.dispose()
    markReplicated(this.module.parameters, false)
  }

  #checkPass(): void {
    this.#lifetime.checkAwaited('a backward pass')
    if (this.synchronizes) this.#joined?.loop.announce(true)
  }

  /** Takes part in the steps of ranks that still have data, until no rank has any. */
  async #shadow(loop: JoinedLoop): Promise<void> {
    // the others wait for a step that has begun to travel, but not for accumulated gradients
    if (!loop.isAnnounced) this.#exchange.clear()
    for (;;) {
      loop.announce(false)
      if ((await loop.live()) === 0) return
      await this.#finishStep()
    }
  }

  async #take(tokens?: number, loss?: number, scale = 1): Promise<Map<string, TakenGradient>> {
    checkTokens(this.#options, tokens)
    return await this.#lifetime.alone('gradients()', async () => {
      checkUsed(this.#options, this.#exchange, this.#group)
      this.#joined?.loop.announce(true)
      return await this.#finishStep(tokens, loss, scale)
    })
  }

  async #finishStep(
    tokens?: number,
    loss?: number,
    scale = 1,
  ): Promise<Map<string, TakenGradient>> {
    const exchange = this.#exchange
    const { order } = exchange
    exchange.startUntil()
    await exchange.exchangeDeferred()
    const live = await this.#joined?.loop.live()
    this.#joined?.loop.next()
    const axes = [this.#group]
    const own = { tokens, loss, abandoned: this.#abandoned }
    this.totals = await this.#sum.sum(exchange, own)
    const { count, unused } = this.totals
    await exchange.finished()
    // The first rank may be through with its loop: it is then the longest one's that count, in the end.
    if (this.#joined === undefined) await this.#buffers.share(axes)
    const isByLive = this.#options.reduction === 'mean' && this.#joined?.divideBy === 'live'
    const factor = factorOf(axes, isByLive ? live! : count)
    const taken = exchange.take(factor / scale, unused)
    this.scale = powerOfTwoNear(factor)
    this.#steps++
    if (this.#isReordered) return taken
    // other buckets take the place of these
    for (const [name, { values, shape }] of taken)
      taken.set(name, { values: values.slice(), shape })
    await this.#reorder(order)
    return taken
  }

  /** After the first step: makes buckets in the order in which rank 0 has got its gradients. */
  async #reorder(arrivals: readonly string[]): Promise<void> {
    if (this.#isReordered) return
    this.#isReordered = true
    const order = await this.#group.broadcastObject([...arrivals], 0)
    const place = new Map(order.map((name, i) => [name, i]))
    if (place.size !== this.#trained.length) return
    this.#exchange.dispose()
    const sorted = this.#trained.toSorted((a, b) => place.get(a.name)! - place.get(b.name)!)
    this.#exchange = this.#open(sorted)
  }

  #open(parameters: readonly Parameter[]): AllReduceExchange {
    const buckets = planBuckets(parameters, this.#options)
    return new AllReduceExchange(this.#group, buckets, this.#options)
  }
}

/** Without copies. */
function viewsOf(taken: ReadonlyMap<string, TakenGradient>): ReadonlyMap<string, Float32Array> {
  return new Map([...taken].map(([name, { values }]) => [name, values]))
}
