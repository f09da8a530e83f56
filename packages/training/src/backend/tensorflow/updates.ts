import type { Tensor } from '@tensorflow/tfjs-core'
import type { AdamFactors, Store, UpdatesInPlace } from '../../tfjs/backend.ts'
import type { BindingKernels } from './binding-kernels.ts'
import { currentEager, type Eager, type Handle } from './eager.ts'

/** The most elements (1 MiB) that one thread updates as fast as all threads do. The bits are the same. */
const LARGEST_CALL = 2 ** 18

/** Updates by kernels of the binding if tensors are small, else by the optimizers of TensorFlow. */
class EagerUpdates implements UpdatesInPlace {
  readonly #eager: Eager
  readonly #variables: readonly [Handle, Handle, Handle]
  readonly #empty: Handle
  readonly #scalars = new Map<number, Handle>()
  #areVariablesEmpty = true

  constructor(eager: Eager) {
    this.#eager = eager
    this.#variables = [eager.variable('first'), eager.variable('second'), eager.variable('third')]
    this.#empty = eager.scalar(0)
  }

  descend(value: Tensor, gradient: Tensor, rate: number, store: Store): void {
    const isDone = this.#call([value], gradient, store, (kernels, handles) =>
      kernels.descend(handles, rate),
    )
    if (isDone) return
    this.#update([value], store, ([variable]) => {
      const inputs = [variable!, this.#scalar(rate), this.#eager.handleOf(gradient)]
      this.#eager.apply('ResourceApplyGradientDescent', inputs)
    })
  }

  descendWithMomentum(
    [value, velocity]: readonly [Tensor, Tensor],
    gradient: Tensor,
    { rate, momentum }: { readonly rate: number; readonly momentum: number },
    store: Store,
  ): void {
    const isDone = this.#call([value, velocity], gradient, store, (kernels, handles) =>
      kernels.descendWithMomentum(handles, rate, momentum),
    )
    if (isDone) return
    this.#update([value, velocity], store, (variables) => {
      const [given, by] = [this.#eager.handleOf(gradient), this.#scalar(momentum)]
      this.#eager.apply('ResourceApplyMomentum', [...variables, this.#scalar(rate), given, by])
    })
  }

  /**
   * TensorFlow adds epsilon before it corrects the mean square for its start at zero (Kingma & Ba,
   * 2015, end of section 2), torch afterwards. TensorFlow therefore gets a corrected epsilon.
   */
  adam(
    tensors: readonly [value: Tensor, mean: Tensor, square: Tensor],
    gradient: Tensor,
    { learningRate, betas: [beta1, beta2], step, epsilon }: AdamFactors,
    store: Store,
  ): void {
    const [power1, power2] = [beta1 ** step, beta2 ** step]
    const corrected = epsilon * Math.sqrt(1 - power2)
    const factors = [power1, power2, learningRate, beta1, beta2, corrected] as const
    const isDone = this.#call(tensors, gradient, store, (kernels, handles) =>
      kernels.adam(handles, ...factors),
    )
    if (isDone) return
    this.#update(tensors, store, (variables) => {
      const scalars = factors.map((factor) => this.#scalar(factor))
      const inputs = [...variables, ...scalars, this.#eager.handleOf(gradient)]
      this.#eager.apply('ResourceApplyAdam', inputs)
    })
  }

  finish(): void {
    if (this.#areVariablesEmpty) return
    this.#areVariablesEmpty = true
    for (const variable of this.#variables) this.#eager.assign(variable, this.#empty)
    for (const scalar of this.#scalars.values()) this.#eager.free(scalar)
    this.#scalars.clear()
  }

  /** @returns whether a kernel has updated the values of the tensors in place */
  #call(
    tensors: readonly Tensor[],
    gradient: Tensor,
    store: Store,
    update: (kernels: BindingKernels, handles: Int32Array) => boolean,
  ): boolean {
    const eager = this.#eager
    const { kernels } = eager
    if (kernels === undefined || gradient.size > LARGEST_CALL) return false
    if (!tensors.every((tensor) => eager.isAlone(tensor))) return false
    let isDone = false
    try {
      isDone = update(kernels, Int32Array.from(eager.handlesOf([...tensors, gradient])))
    } catch (error) {
      store([...tensors])
      throw error
    }
    if (isDone) store(tensors.map((tensor) => eager.retake(tensor)))
    return isDone
  }

  #update(
    tensors: readonly Tensor[],
    store: Store,
    apply: (variables: readonly Handle[]) => void,
  ): void {
    const eager = this.#eager
    const variables = this.#variables.slice(0, tensors.length)
    this.#areVariablesEmpty = false
    for (const [i, tensor] of tensors.entries()) {
      eager.assign(variables[i]!, eager.handleOf(tensor))
    }
    const shapes = tensors.map(({ shape }) => shape)
    // TensorFlow copies values to which there is another reference before it changes them.
    for (const tensor of tensors) tensor.dispose()
    try {
      apply(variables)
    } finally {
      store(shapes.map((shape, i) => eager.take(eager.read(variables[i]!), shape)))
    }
  }

  /** Kept until the end of a step, whose parameters mostly have the same factors. */
  #scalar(value: number): Handle {
    let scalar = this.#scalars.get(value)
    if (scalar === undefined) {
      scalar = this.#eager.scalar(value)
      this.#scalars.set(value, scalar)
    }
    return scalar
  }
}

const updates = new WeakMap<Eager, EagerUpdates>()

/** The updates of TensorFlow on the CPU; undefined on a GPU. */
export function updatesInPlace(): UpdatesInPlace | undefined {
  const eager = currentEager()
  if (eager?.isOnHost !== true) return undefined
  let found = updates.get(eager)
  if (found === undefined) {
    found = new EagerUpdates(eager)
    updates.set(eager, found)
  }
  return found
}
