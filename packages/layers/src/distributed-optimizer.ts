import { createRequire } from 'node:module'
import { argumentError, createLogger, having, host } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type * as tfc from '@tensorflow/tfjs-core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { broadcastTensor, flatten, tensorFrom, tf, writeTo, type Shard } from '@tsrun/training'
import {
  checkBackendBlocks,
  checkGroup,
  compareParameters,
  compareReplicas,
  describeParameters,
  partsOf,
  registerGradients,
} from '@tsrun/training/parts'
import { weightsOf, type LayersModel } from './model.ts'

/** A weight of an optimizer of tf.train. The first weight of an optimizer is its number of steps. */
type OptimizerWeight = Awaited<ReturnType<tfc.Optimizer['saveIterations']>>

interface Gradient {
  readonly name: string
  readonly tensor: Tensor
  readonly shape: number[]
}
type GradientsOfVariables = Parameters<tfc.Optimizer['applyGradients']>[0]

/**
 * Makes `fit` and `minimize` of a tf.layers model data parallel, like Horovod's
 * DistributedOptimizer for Keras. It wraps an optimizer of `tf.train`. Before each update it
 * averages the gradients over the group, in one blocking all-reduce.
 *
 * The first step sets the trained variables of all ranks to those of rank 0. For untrained variables see
 * {@link broadcastWeights}. The optimizer state is the same on all ranks: empty at first, and the state of
 * rank 0 after `setWeights`.
 *
 * Each rank fits its own part of the data. All ranks must have the same number of examples and the
 * same batch size. The mean of their gradients is then the gradient of one batch with all examples,
 * and no rank waits forever. The loss and metrics of `fit` cover only the rank's own part, unless
 * {@link averageMetrics} is among its callbacks.
 *
 * The optimizer has the name, configuration and weights of the wrapped optimizer.
 *
 * @throws ERR_TSR_REPLICA from a step, when ranks train different variables, and from the start of
 *   `fit`, when ranks have different numbers of examples, batches or epochs; ERR_TSR_ARGUMENT from
 *   a step, when the wrapped optimizer has made steps on this rank only; ERR_TSR_BACKEND from the
 *   first step on webgpu, which cannot block inside `fit`
 * @example
 * const model = tfl.sequential({ layers: [tfl.layers.dense({ inputShape: [784], units: 10 })] })
 * const optimizer = new DistributedOptimizer(tf.train.sgd(0.1), group)
 * model.compile({ optimizer, loss: tf.losses.softmaxCrossEntropy })
 * await model.fit(myInputs, myLabels, { batchSize: 64, epochs: 2 })
 */
export class DistributedOptimizer extends tf.Optimizer {
  /** The wrapped optimizer, which updates the variables. Set the learning rate on it. */
  readonly inner: tfc.Optimizer
  readonly #group: ProcessGroup
  readonly #shared = new Set<string>()
  #bucket: Float32Array | undefined
  #signature: string | undefined
  /** The number of steps that the wrapped optimizers of all ranks have made together. */
  #steps = 0

  /**
   * @throws ERR_TSR_ARGUMENT unless the arguments are an optimizer of tf.train and a process group
   */
  constructor(inner: tfc.Optimizer, group: ProcessGroup) {
    super()
    trainOptimizer.check('inner', inner)
    checkGroup(group)
    this.inner = inner
    this.#group = group
    compareFits()
  }

  get sharedBy(): ProcessGroup {
    return this.#group
  }

  override computeGradients(
    f: () => tfc.Scalar,
    varList?: tfc.Variable[],
  ): { value: tfc.Scalar; grads: tfc.NamedTensorMap } {
    registerGradients()
    if (this.iterations === 0 && this.#group.rank === 0) warnOfCpu()
    if (this.#group.size > 1) {
      checkBackendBlocks()
      const { registeredVariables } = tf.engine()
      this.#share(varList ?? Object.values(registeredVariables).filter((it) => it.trainable))
    }
    return super.computeGradients(f, varList)
  }

  override applyGradients(gradients: GradientsOfVariables): void {
    if (this.#group.size === 1) {
      this.inner.applyGradients(gradients)
      return
    }
    const named = Array.isArray(gradients)
      ? gradients
      : Object.entries(gradients).map(([name, tensor]) => ({ name, tensor }))
    // `fit` also lists variables on which the loss does not depend. Their gradients are undefined.
    const present = named
      .filter(({ tensor }: { readonly tensor: unknown }) => Boolean(tensor))
      .map(({ name, tensor }) => ({ name, tensor, shape: tensor.shape }))
    this.#compare(present)
    const averages = this.#average(present)
    try {
      // Pass all names in their order, because an optimizer finds a variable's state by its index
      // in this list.
      this.inner.applyGradients(
        named.map(({ name, tensor }) => ({ name, tensor: averages.get(name) ?? tensor })),
      )
    } finally {
      for (const tensor of averages.values()) tensor.dispose()
    }
    this.#steps = this.inner.iterations
  }

  override get iterations(): number {
    return this.inner.iterations
  }

  override dispose(): void {
    this.#freeBucket()
    this.inner.dispose()
  }

  override async saveIterations(): Promise<OptimizerWeight> {
    return await this.inner.saveIterations()
  }

  override async getWeights(): Promise<OptimizerWeight[]> {
    return await this.inner.getWeights()
  }

  /** Sets the wrapped optimizers of all ranks to the weights of rank 0. All ranks must call it. */
  override async setWeights(weights: OptimizerWeight[]): Promise<void> {
    if (this.#group.size === 1) {
      await this.inner.setWeights(weights)
      return
    }
    const options = { label: 'weights of the optimizer' }
    const own = weights.map(({ name, tensor: { shape, dtype } }) => ({ name, shape, dtype }))
    const ofRoot = await this.#group.broadcastObject(own, 0, options)
    const isRoot = this.#group.rank === 0
    const shared: OptimizerWeight[] = []
    try {
      for (const [i, { name, shape, dtype }] of ofRoot.entries()) {
        const tensor = isRoot ? weights[i]!.tensor : tf.zeros(shape, dtype)
        const received = broadcastTensor(this.#group, tensor, 0, options)
        if (!isRoot) tensor.dispose()
        shared.push({ name, tensor: await received })
      }
      await this.inner.setWeights(shared)
      this.#steps = this.inner.iterations
    } finally {
      for (const { tensor } of shared) tensor.dispose()
    }
  }

  override getClassName(): string {
    return this.inner.getClassName()
  }

  override getConfig(): ReturnType<tfc.Optimizer['getConfig']> {
    return this.inner.getConfig()
  }

  #share(variables: readonly tfc.Variable[]) {
    const fresh = variables.filter(({ name }) => !this.#shared.has(name))
    if (fresh.length === 0) return
    // `parallelizeLayers` adds the property `shard` to its variables.
    const described: readonly (tfc.Variable & { readonly shard?: Shard })[] = fresh
    compareReplicas(this.#group.allGatherObjectSync(describeParameters(described)), this.#group)
    const layout = flatten(fresh)
    const buffer = this.#group.alloc('float32', layout.length)
    try {
      const parts = partsOf(layout, buffer)
      for (const variable of fresh) void writeTo(variable, parts.get(variable.name)!)
      this.#group.broadcastSync(buffer, 0, { label: 'variables of rank 0' })
      for (const variable of this.#group.rank === 0 ? [] : fresh) {
        const value = tensorFrom(parts.get(variable.name)!, variable.shape)
        variable.assign(value)
        value.dispose()
      }
    } finally {
      this.#group.free(buffer)
    }
    for (const { name } of fresh) this.#shared.add(name)
  }

  /** Compares variables and steps between ranks if they changed on this rank since the last step. */
  #compare(gradients: readonly Gradient[]) {
    const described = describeParameters(gradients)
    const signature = described.join('\n')
    const ownSteps = this.inner.iterations - this.#steps
    if (signature === this.#signature && ownSteps === 0) return
    const ranks = this.#group.allGatherObjectSync({ described, ownSteps })
    compareReplicas(
      ranks.map((each) => each.described),
      this.#group,
    )
    const rank = ranks.findIndex((each) => each.ownSteps !== 0)
    if (rank !== -1) {
      throw argumentError(
        'inner',
        `an optimizer that rank ${String(this.#group.ranks[rank])} has used without the others`,
        'a new one, or setWeights(await getWeights()) before the step, on all ranks',
      )
    }
    this.#signature = signature
  }

  #average(gradients: readonly Gradient[]) {
    const layout = flatten(gradients)
    const buffer = this.#bucketOf(layout.length)
    const parts = partsOf(layout, buffer)
    for (const { name, tensor } of gradients) void writeTo(tensor, parts.get(name)!)
    this.#group.allReduceSync(buffer, { op: 'avg', label: 'gradients of fit' })
    return new Map(gradients.map(({ name, shape }) => [name, tensorFrom(parts.get(name)!, shape)]))
  }

  #bucketOf(length: number) {
    if (this.#bucket?.length === length) return this.#bucket
    this.#freeBucket()
    this.#bucket = this.#group.alloc('float32', length)
    return this.#bucket
  }

  #freeBucket() {
    if (this.#bucket !== undefined) this.#group.free(this.#bucket)
    this.#bucket = undefined
  }
}

const trainOptimizer = having<tfc.Optimizer>(
  ['applyGradients', 'getWeights'],
  'an optimizer of tf.train',
)

function warnOfCpu() {
  if (tf.getBackend() !== 'cpu' || host.env['TSRUN_BACKEND'] === 'cpu') return
  const advice = 'before you make the model, await loadBackend() of @tsrun/training'
  createLogger('layers').warn({}, `fit runs on the slow backend cpu: ${advice}`)
}

interface FitParameters {
  readonly epochs: number
  readonly initialEpoch: number | null
  readonly samples: number | null
  readonly batchSize: number | null
  readonly steps: number | null
}

const nothing = (): void => undefined

/** A callback of `fit`. tf.layers creates a new one for each call. */
class FitComparison {
  #parameters: FitParameters | undefined
  #optimizer: Partial<DistributedOptimizer> | undefined

  setParams(parameters: FitParameters): void {
    this.#parameters = parameters
  }

  setModel({ optimizer }: { readonly optimizer?: object }): void {
    this.#optimizer = optimizer
  }

  async onTrainBegin(): Promise<void> {
    const group = this.#optimizer?.sharedBy
    if (group === undefined || group.size === 1) return
    const { epochs, initialEpoch, samples, batchSize, steps } = this.#parameters!
    const facts = Object.entries({ examples: samples, batchSize, batches: steps })
      .filter(([, value]) => typeof value === 'number')
      .map(([name, value]) => `${String(value)} ${name} in fit`)
    facts.push(`${epochs - (initialEpoch ?? 0)} epochs in fit`)
    compareReplicas(await group.allGatherObject(facts), group, 'options')
  }

  // tf.layers requires these methods of every callback.
  readonly onTrainEnd = nothing
  readonly onEpochBegin = nothing
  readonly onEpochEnd = nothing
  readonly onBatchBegin = nothing
  readonly onBatchEnd = nothing
}

const compared = new WeakSet()

/**
 * Makes `fit` with a `DistributedOptimizer` first compare numbers of examples, batches and epochs between
 * ranks, because a rank with more batches than others would wait forever.
 */
function compareFits() {
  for (const library of loadedLayers()) {
    if (compared.has(library)) continue
    library.registerCallbackConstructor(0, FitComparison)
    compared.add(library)
  }
}

interface Layers {
  registerCallbackConstructor(verbosity: number, callback: new () => object): void
}

function loadedLayers() {
  return Object.entries(createRequire(import.meta.url).cache).flatMap(([file, loaded]) => {
    const exports = file.includes('tfjs-layers') ? (loaded?.exports as Partial<Layers>) : {}
    return typeof exports.registerCallbackConstructor === 'function' ? [exports as Layers] : []
  })
}

/** The argument of the constructor `CustomCallback` of tf.layers. */
export interface MetricsCallback {
  onEpochEnd(epoch: number, logs?: Record<string, unknown>): Promise<void>
}

/**
 * Returns a callback that makes the loss and metrics of `fit` the same on all ranks, like Horovod's
 * MetricAverageCallback. It replaces each value with the mean over the ranks, before later
 * callbacks and the history see it. Early stopping thus happens at the same epoch on all ranks. All
 * ranks must fit the same number of epochs with the same metrics.
 *
 * @example
 * const average = new tfl.CustomCallback(averageMetrics(group))
 * const patient = tfl.callbacks.earlyStopping({ monitor: 'val_loss', patience: 2 })
 * await model.fit(x, y, { validationSplit: 0.1, callbacks: [average, patient] })
 */
export function averageMetrics(group: ProcessGroup): MetricsCallback {
  return {
    async onEpochEnd(_epoch, logs = {}) {
      const names = Object.keys(logs)
        .filter((name) => typeof logs[name] === 'number')
        .sort()
      const values = Float64Array.from(names, (name) => logs[name] as number)
      await group.allReduce(values, { op: 'avg', label: `metrics: ${names.join(', ')}` })
      for (const [i, name] of names.entries()) logs[name] = values[i]!
    },
  }
}

/**
 * Sets all weights of a tf.layers model to the values of rank `root`, including untrained weights, which
 * a `DistributedOptimizer` does not see. Call it before `fit` if frozen layers start with random values.
 * Call it after `fit` if the model has moving averages (batch normalization), which differ between ranks.
 *
 * @throws ERR_TSR_REPLICA when the ranks have different weights, ERR_TSR_ARGUMENT
 *
 * @example
 * await broadcastWeights(model, group)
 */
export async function broadcastWeights(
  model: LayersModel,
  group: ProcessGroup,
  root = 0,
): Promise<void> {
  checkGroup(group)
  const weights = weightsOf(model)
  await compareParameters(
    weights.map(({ name, shape, variable: { shard } }) => ({ name, shape, shard })),
    group,
  )
  for (const { variable } of weights) {
    const options = { label: 'weights of the model' }
    const value = await broadcastTensor(group, variable.read(), root, options)
    if (group.rank !== root) variable.write(value)
    value.dispose()
  }
}
