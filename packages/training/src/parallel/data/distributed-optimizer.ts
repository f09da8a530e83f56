import type { ProcessGroup } from '@tsrun/distributed'
import type * as tfc from '@tensorflow/tfjs-core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { registerGradients, tf } from '../../backend/tensorflow.ts'
import { flatten, partsOf } from '../../optim/flatten.ts'
import { blockingBackend } from '../tensor/blocking.ts'
import { compareReplicas, describeParameters } from './replicas.ts'

type Named<T> = { readonly name: string; readonly tensor: T }
type NamedTensor = Awaited<ReturnType<tfc.Optimizer['saveIterations']>>
type GradientsOfVariables = Parameters<tfc.Optimizer['applyGradients']>[0]

/**
 * Makes `fit` of a tf.layers model, and `minimize`, data parallel (as Horovod's DistributedOptimizer
 * does for Keras): wraps an optimizer of `tf.train`, and averages the gradients over the ranks of the
 * group before it sees them, all in one blocking all-reduce. The first step begins with the trained
 * variables of rank 0; see {@link broadcastWeights} for those that are not trained.
 *
 * Each rank fits its own part of the data: equally many examples on all ranks, in batches of the same
 * size, so that the mean of their gradients is the gradient of a batch as large as all together, and no
 * rank is left waiting. The loss and the metrics that `fit` shows are those of the rank's own part.
 *
 * All else is the wrapped optimizer's: its name, its configuration and its weights.
 *
 * @throws ERR_TSR_REPLICA, at a step, when the ranks train other variables;
 *   ERR_TSR_BACKEND, at the first step, on webgpu, which cannot wait inside `fit`
 *
 * @example
 * const model = tfjs.sequential({ layers: [tfjs.layers.dense({ inputShape: [784], units: 10 })] })
 * const optimizer = new DistributedOptimizer(tf.train.sgd(0.1), group)
 * model.compile({ optimizer, loss: tfjs.losses.softmaxCrossEntropy })
 * await model.fit(myInputs, myLabels, { batchSize: 64, epochs: 2 })
 */
export class DistributedOptimizer extends tf.Optimizer {
  /** The one that updates the variables; change its learning rate there. */
  readonly inner: tfc.Optimizer
  readonly #group: ProcessGroup
  /** Names of the variables that have the values of rank 0. */
  readonly #shared = new Set<string>()
  #bucket: Float32Array | undefined
  /** Of the gradients of the last step. */
  #signature: string | undefined

  constructor(inner: tfc.Optimizer, group: ProcessGroup) {
    super()
    this.inner = inner
    this.#group = group
  }

  override computeGradients(
    f: () => tfc.Scalar,
    varList?: tfc.Variable[],
  ): { value: tfc.Scalar; grads: tfc.NamedTensorMap } {
    registerGradients()
    if (this.#group.size > 1) {
      blockingBackend()
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
    // fit lists a variable that the loss does not depend on without a gradient
    const present = named.filter(({ tensor }: Named<unknown>) => Boolean(tensor)).sort(byName)
    this.#compare(present)
    const averages = this.#average(present)
    try {
      this.inner.applyGradients(averages)
    } finally {
      for (const { tensor } of averages) tensor.dispose()
    }
  }

  override get iterations(): number {
    return this.inner.iterations
  }

  override dispose(): void {
    this.#freeBucket()
    this.inner.dispose()
  }

  override async saveIterations(): Promise<NamedTensor> {
    return await this.inner.saveIterations()
  }

  override async getWeights(): Promise<NamedTensor[]> {
    return await this.inner.getWeights()
  }

  override async setWeights(weights: NamedTensor[]): Promise<void> {
    await this.inner.setWeights(weights)
  }

  override getClassName(): string {
    return this.inner.getClassName()
  }

  override getConfig(): ReturnType<tfc.Optimizer['getConfig']> {
    return this.inner.getConfig()
  }

  /** Gives variables that are new to it the values of rank 0. */
  #share(variables: readonly tfc.Variable[]): void {
    const fresh = variables.filter(({ name }) => !this.#shared.has(name))
    if (fresh.length === 0) return
    compareReplicas(this.#group.allGatherObjectSync(describeParameters(fresh)))
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

  /** That the ranks have gradients of the same variables, when these are others than in the last step. */
  #compare(gradients: readonly Named<Tensor>[]): void {
    const variables = gradients.map(({ name, tensor: { shape } }) => ({ name, shape }))
    const described = describeParameters(variables)
    const signature = described.join('\n')
    if (signature === this.#signature) return
    compareReplicas(this.#group.allGatherObjectSync(described))
    this.#signature = signature
  }

  #average(gradients: readonly Named<Tensor>[]): Named<Tensor>[] {
    const layout = flatten(gradients.map(({ name, tensor }) => ({ name, shape: tensor.shape })))
    const buffer = this.#bucketOf(layout.length)
    const parts = partsOf(layout, buffer)
    for (const { name, tensor } of gradients) void writeTo(tensor, parts.get(name)!)
    this.#group.allReduceSync(buffer, { op: 'avg', label: 'gradients of fit' })
    return gradients.map(({ name, tensor }) => {
      return { name, tensor: tensorFrom(parts.get(name)!, tensor.shape) }
    })
  }

  /** The one of the last step, unless other variables are trained now. */
  #bucketOf(length: number): Float32Array {
    if (this.#bucket?.length === length) return this.#bucket
    this.#freeBucket()
    this.#bucket = this.#group.alloc('float32', length)
    return this.#bucket
  }

  #freeBucket(): void {
    if (this.#bucket !== undefined) this.#group.free(this.#bucket)
    this.#bucket = undefined
  }
}

function byName(a: Named<unknown>, b: Named<unknown>): number {
  return a.name < b.name ? -1 : 1
}
