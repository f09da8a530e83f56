import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../../model/recording.ts'
import { tf } from '../../backend/tfjs.ts'
import type { Parameter } from '../../model/parameter.ts'
import { planBuckets } from './buckets.ts'
import type { DataParallel } from './data-parallel.ts'
import { checkJoin, JoinedLoop, type JoinOptions } from './joined-loop.ts'
import { Lifetime } from './lifetime.ts'
import { checkTokens, type GradientOptions, type Replicated } from './options.ts'
import { Reducer, type Traffic } from './reducer.ts'
import { unmarkReplicated } from './replicated.ts'
import { broadcastParameters, broadcastState } from './replicas.ts'
import { checkUsed, factorOf, sumStep } from './step-totals.ts'

interface Plan {
  readonly trained: readonly Parameter[]
  readonly options: GradientOptions
}

interface Joined {
  readonly loop: JoinedLoop
  readonly divideBy: 'live' | 'world'
}

export class Replica<M extends Replicated> implements DataParallel<M> {
  readonly module: M
  readonly onGradient: GradientListener
  synchronizes = true
  readonly #group: ProcessGroup
  readonly #plan: Plan
  readonly #lifetime: Lifetime
  #reducer: Reducer
  #isRebuilt = false
  #steps = 0
  #joined: Joined | undefined

  constructor(module: M, group: ProcessGroup, plan: Plan) {
    this.module = module
    this.#group = group
    this.#plan = plan
    this.#lifetime = new Lifetime(group)
    this.#reducer = this.#open([...plan.trained].reverse())
    const names = new Set(plan.trained.map(({ name }) => name))
    this.onGradient = (parameter, gradient) => {
      this.#lifetime.take(gradient, () => {
        if (!names.has(parameter.name)) return
        if (this.synchronizes) this.#joined?.loop.announce(true)
        this.#reducer.add(parameter, gradient, this.synchronizes)
      })
    }
  }

  get traffic(): Traffic {
    return this.#reducer.traffic
  }

  async gradients(tokens?: number): Promise<Map<string, Tensor>> {
    const { options } = this.#plan
    checkTokens(options, tokens)
    return await this.#lifetime.alone('gradients()', async () => {
      checkUsed(options, this.#reducer.arrivals, this.#group)
      this.#joined?.loop.announce(true)
      return await this.#finishStep(tokens ?? 0)
    })
  }

  async join(loop: () => Promise<void>, options: JoinOptions): Promise<void> {
    const { optimizer, divideBy } = checkJoin(options)
    await this.#lifetime.step(async () => {
      const joined = { divideBy, loop: new JoinedLoop(this.#group) }
      this.#joined = joined
      try {
        await loop()
        const own = this.#steps
        await this.#shadow(joined.loop)
        const steps = await this.#group.allGatherObject(own)
        const root = steps.indexOf(Math.max(...steps))
        await broadcastParameters([...new Set(this.module.parameters)], this.#group, root)
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
    this.#reducer.dispose()
    unmarkReplicated(this.module.parameters)
  }

  /** Takes part in the steps of ranks that still have data, until there is none. */
  async #shadow(loop: JoinedLoop): Promise<void> {
    // a step that has begun to travel is waited for by the others; what was kept for later is not
    if (!loop.isAnnounced) this.#reducer.arrivals.clear()
    for (;;) {
      loop.announce(false)
      if ((await loop.live()) === 0) return
      tf.dispose([...(await this.#finishStep(0)).values()])
    }
  }

  async #finishStep(tokens: number): Promise<Map<string, Tensor>> {
    const { arrivals } = this.#reducer
    const { order, used, names } = arrivals
    this.#reducer.launchRest()
    const live = await this.#joined?.loop.live()
    this.#joined?.loop.next()
    const { options } = this.#plan
    const axes = [this.#group]
    const { count, unused } = await sumStep(axes, options, { tokens, used, names })
    const isByLive = options.reduction === 'mean' && this.#joined?.divideBy === 'live'
    await this.#reducer.arrived()
    const gradients = this.#reducer.take(factorOf(axes, isByLive ? live! : count), unused)
    this.#steps++
    await this.#rebuild(order)
    return gradients
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
    const { options } = this.#plan
    return new Reducer(this.#group, planBuckets(parameters, options.sizes), options)
  }
}
