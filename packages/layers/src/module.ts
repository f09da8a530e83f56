import { tsrError } from '@tsrun/core'
import {
  currentPass,
  replaceValue,
  tf,
  type Module,
  type Parameter,
  type Tensor,
} from '@tsrun/training'
import { weightsOf, type LayersModel, type LayersVariable } from './model.ts'
import { drawByPass, type Compound } from './random-layers.ts'

/** A model of tf.layers for `trainer` of `@tsrun/training`, which asks this package for it. */
export interface AdaptedLayers {
  /** Whether the outputs are probabilities, which cross-entropy would put through softmax once more. */
  readonly endsInSoftmax: boolean
  /** The model as a module. `restore` gives the model its trained weights before they are disposed. */
  build(): Module & { restore(): void }
}

/** @throws ERR_TSR_ARGUMENT for regularizers: here the loss is that of the trainer alone */
export function adaptLayers(model: LayersModel): AdaptedLayers {
  const at = model.layers.findIndex(({ losses = [] }) => losses.length > 0)
  if (at >= 0) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'model',
      value: `one whose layer ${at} has a regularizer`,
      expected: 'one without; AdamW decays weights, and a loss of your own may have more terms',
    })
  }
  const last = model.layers.at(-1)
  return {
    endsInSoftmax:
      last?.getClassName() === 'Softmax' || last?.getConfig()['activation'] === 'softmax',
    build: () => new LayersModule(model),
  }
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
  readonly #values: ReadonlyMap<LayersVariable, Parameter>

  constructor(model: LayersModel) {
    this.#model = model
    const weights = weightsOf(model)
    const values = new Map(
      weights.map(({ variable, name, shape }) => [variable, take(variable, name, shape)]),
    )
    const those = (isTrained: boolean) =>
      weights
        .filter((each) => each.isTrained === isTrained)
        .map(({ variable }) => values.get(variable)!)
    this.parameters = those(true)
    this.buffers = those(false)
    this.#values = values
  }

  forward(x: Tensor): Tensor {
    const options = { training: currentPass()?.training === true }
    const layers = this.#model.layers as unknown as readonly Compound[]
    return drawByPass(layers, () => this.#model.apply(x, options)) as Tensor
  }

  restore(): void {
    for (const [variable, { value }] of this.#values) {
      delete (variable as Partial<LayersVariable>).read
      delete (variable as Partial<LayersVariable>).write
      variable.write(value)
    }
  }
}

/** Makes the weight read its value from a parameter with a copy of it. */
function take(variable: LayersVariable, name: string, shape: readonly number[]): Parameter {
  // A copy: the variable of tf.layers stays what it was until `restore`.
  const parameter = { name, shape, value: tf.keep(tf.clone(variable.read())) }
  variable.read = () => parameter.value
  variable.write = (next) => {
    if (currentPass()?.isRepeated !== true) replaceValue(parameter, tf.keep(tf.clone(next)))
  }
  return parameter
}
