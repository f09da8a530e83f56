import { tsrError } from '@tsrun/core'
import { numbered } from '../checkpoint/layers-model.ts'
import { describe } from '../model/describe.ts'
import type { Module } from '../model/module.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import { currentPass } from '../model/pass.ts'
import type { PipelineModel } from '../parallel/recipe.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

/** What `trainer` takes: a module, a recipe that builds parts of a model, or a model of tf.layers. */
export type TrainableModel = Module | PipelineModel | LayersModel

/** A weight of tf.layers. */
interface LayersWeight {
  readonly originalName: string
  readonly shape: readonly (number | null)[]
  read(): Tensor
  write(value: Tensor): unknown
}

/** The properties of a `tf.LayersModel` that a trainer uses. */
export interface LayersModel {
  readonly layers: readonly {
    readonly trainableWeights: readonly LayersWeight[]
    readonly nonTrainableWeights: readonly LayersWeight[]
    /** What regularizers add to the loss. */
    readonly losses?: readonly unknown[]
    getClassName(): string
    getConfig(): Readonly<Record<string, unknown>>
  }[]
  apply(x: Tensor, options?: { readonly training?: boolean }): unknown
  getClassName(): string
}

/** A model as the layers of a pipeline, and as a whole. */
export interface AdaptedModel {
  /** Undefined if the model cannot be cut into stages. */
  readonly recipe: PipelineModel | undefined
  build(): Module
}

/** @throws ERR_TSR_ARGUMENT unless it can be trained */
export function adaptModel(model: TrainableModel): AdaptedModel {
  if (isRecipe(model)) {
    return {
      recipe: model,
      build: () => model.slice(0, model.layers),
    }
  }
  if (isLayersModel(model)) {
    refuseRegularizers(model)
    return { recipe: undefined, build: () => withParameters(new LayersModule(model)) }
  }
  if (isModule(model)) return { recipe: undefined, build: () => withParameters(model) }
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'model',
    value: describe(model),
    expected:
      'a module ({ parameters, forward }), a recipe such as shardedMLP(...), or a model of tf.layers',
  })
}

/** Nothing of a model without parameters would be trained. */
function withParameters<M extends Module>(model: M): M {
  if (model.parameters.length > 0) return model
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'model',
    value: 'one without parameters',
    expected:
      'one with a parameter; weights are made by createParameter(...), not by tf.variable(...)',
  })
}

/** They would add to the loss of `model.fit`; here the loss is that of the trainer alone. */
function refuseRegularizers({ layers }: LayersModel): void {
  const at = layers.findIndex(({ losses = [] }) => losses.length > 0)
  if (at < 0) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'model',
    value: `one whose layer ${at} has a regularizer`,
    expected: 'one without; AdamW decays weights, and a loss of your own may have more terms',
  })
}

/**
 * Whether the outputs of a model of tf.layers are probabilities, which cross-entropy would put through
 * softmax once more.
 */
export function endsInSoftmax(model: TrainableModel): boolean {
  if (!isLayersModel(model)) return false
  const last = model.layers.at(-1)
  return last?.getClassName() === 'Softmax' || last?.getConfig()['activation'] === 'softmax'
}

function isRecipe(model: TrainableModel): model is PipelineModel {
  return typeof (model as Partial<PipelineModel> | null)?.slice === 'function'
}

function isLayersModel(model: TrainableModel): model is LayersModel {
  return typeof (model as Partial<LayersModel> | null)?.getClassName === 'function'
}

function isModule(model: TrainableModel): model is Module {
  const { parameters, forward } = (model as Partial<Module> | null) ?? {}
  return Array.isArray(parameters) && typeof forward === 'function'
}

/**
 * A model of tf.layers as a module: while it is trained, its weights are read from the parameters here,
 * so that the tape sees them as it sees those of other modules. Weights that are not trained, such as
 * moving averages and those of frozen layers, are buffers.
 */
class LayersModule implements Module {
  readonly usesPass = true
  readonly parameters: readonly Parameter[]
  readonly buffers: readonly Parameter[]
  readonly #model: LayersModel
  readonly #weights: (readonly [LayersWeight, Parameter])[] = []

  constructor(model: LayersModel) {
    this.#model = model
    const [parameters, buffers]: [Parameter[], Parameter[]] = [[], []]
    for (const [index, { trainableWeights, nonTrainableWeights }] of model.layers.entries()) {
      const counts = new Map<string, number>()
      const take = (weight: LayersWeight): Parameter => {
        // Not the names of tf.layers, which counts the layers of a process.
        const name = numbered(weight.originalName.split('/').at(-1)!, counts)
        return this.#take(weight, `layers.${String(index)}.${name}`)
      }
      parameters.push(...trainableWeights.map(take))
      buffers.push(...nonTrainableWeights.map(take))
    }
    this.parameters = parameters
    this.buffers = buffers
  }

  forward(x: Tensor): Tensor {
    return this.#model.apply(x, { training: currentPass()?.training === true }) as Tensor
  }

  /** Gives the model its trained weights, which it keeps when the parameters are disposed. */
  restore(): void {
    for (const [weight, { value }] of this.#weights) {
      delete (weight as Partial<LayersWeight>).read
      delete (weight as Partial<LayersWeight>).write
      weight.write(value)
    }
  }

  #take(weight: LayersWeight, name: string): Parameter {
    // A copy: the variable of tf.layers stays what it was until `restore`.
    const value = tf.keep(tf.clone(weight.read()))
    const parameter = { name, shape: weight.shape as readonly number[], value }
    this.#weights.push([weight, parameter])
    weight.read = () => parameter.value
    weight.write = (next) => {
      if (currentPass()?.isRepeated !== true) replaceValue(parameter, tf.keep(tf.clone(next)))
    }
    return parameter
  }
}

/** To be called before the parameters of a module that `adaptModel` made are disposed. */
export function restoreModel(module: Module & { restore?(): void }): void {
  module.restore?.()
}
