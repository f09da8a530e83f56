import { argumentError } from '@tsrun/core'
import {
  currentPass,
  replaceValue,
  tf,
  type Module,
  type Parameter,
  type Tensor,
} from '@tsrun/training'
import { weightsOf, type LayersModel, type LayersVariable, type LayersWeight } from './model.ts'
import { drawByPass, type Compound } from './random-layers.ts'

/**
 * A tf.layers model, adapted for `trainer` of `@tsrun/training`. The trainer imports this package
 * by name.
 */
export interface AdaptedLayers {
  /**
   * Whether the model's outputs are probabilities. Cross-entropy would apply softmax to them a
   * second time.
   */
  readonly endsInSoftmax: boolean
  /**
   * Makes a module of the model. `restore` copies trained weights back to the model; call it before
   * disposing the parameters.
   */
  build(): Module & { restore(): void }
}

/**
 * Adapts a tf.layers model for `trainer`.
 *
 * @throws ERR_TSR_ARGUMENT for regularizers, because the trainer uses only its own loss
 */
export function adaptLayers(model: LayersModel): AdaptedLayers {
  const at = model.layers.findIndex(({ losses = [] }) => losses.length > 0)
  if (at >= 0) {
    throw argumentError(
      'model',
      `one whose layer ${at} has a regularizer`,
      'one without; AdamW decays weights, and a loss of your own may have more terms',
    )
  }
  const last = model.layers.at(-1)
  return {
    endsInSoftmax:
      last?.getClassName() === 'Softmax' || last?.getConfig()['activation'] === 'softmax',
    build: () => layersModule(model),
  }
}

/**
 * A tf.layers model as a module. During training, the weights of the model read their values from
 * this module's parameters, so that the tape records them. Untrained weights, such as moving
 * averages and weights of frozen layers, are buffers.
 */
function layersModule(model: LayersModel): ReturnType<AdaptedLayers['build']> {
  const weights = weightsOf(model)
  const values = new Map(weights.map((weight) => [weight.variable, take(weight)]))
  const those = (isTrained: boolean) =>
    weights
      .filter((each) => each.isTrained === isTrained)
      .map(({ variable }) => values.get(variable)!)
  return {
    usesPass: true,
    parameters: those(true),
    buffers: those(false),
    forward(x) {
      const options = { training: currentPass()?.training === true }
      const layers = model.layers as unknown as readonly Compound[]
      return drawByPass(layers, () => model.apply(x, options)) as Tensor
    },
    restore() {
      for (const [variable, { value }] of values) {
        delete (variable as Partial<LayersVariable>).read
        delete (variable as Partial<LayersVariable>).write
        variable.write(value)
      }
    },
  }
}

/** Creates a parameter with a copy of a weight's value. The weight then reads the parameter's value. */
function take({ variable, name, shape }: LayersWeight): Parameter {
  // Clone the value, because the variable of tf.layers keeps its own value until `restore`.
  const parameter = { name, shape: [...shape], value: tf.keep(tf.clone(variable.read())) }
  variable.read = () => parameter.value
  variable.write = (next) => {
    const { isRepeated = false, isEmpty = false } = currentPass() ?? {}
    if (!isRepeated && !isEmpty) replaceValue(parameter, tf.keep(tf.clone(next)))
  }
  return parameter
}
