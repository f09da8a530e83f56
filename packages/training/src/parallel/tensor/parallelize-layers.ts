import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor, Variable } from '@tensorflow/tfjs-core'
import type { LayersModelLike } from '../../checkpoint/layers-model.ts'
import { disposeModule, type Module } from '../../model/module.ts'
import { matchName } from '../../model/name-patterns.ts'
import type { Parameter, Shard } from '../../model/parameter.ts'
import { generator } from '../../random/generator.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { unknownLayer } from '../recipe.ts'
import { checkGroup } from '../requirements.ts'
import { isColumnParallel } from './linear-layers.ts'
import { connect, connectRow } from './partial-gathers.ts'
import { checkPlan, type ParallelPlan, type ParallelStyle } from './styles.ts'

interface Named {
  getClassName(): string
}

/** Properties of a tf.layers.dense that may need more than a part of the layer. */
interface DenseOptions {
  readonly name: string
  readonly activation: Named & { apply(x: Tensor): Tensor }
  readonly kernelRegularizer: Named | null
  readonly biasRegularizer: Named | null
  readonly activityRegularizer: Named | null
  readonly kernelConstraint: Named | null
  readonly biasConstraint: Named | null
}

/** The properties of a weight that are used; TensorFlow.js reads it from `val` and `shape`. */
interface DenseVariable {
  readonly originalName: string
  val: Variable
  shape: readonly number[]
  shard?: Shard
}

/** The properties of a tf.layers.dense that are used. */
interface DenseLayer extends DenseOptions {
  readonly kernel: DenseVariable
  readonly bias: DenseVariable | null
  getClassName(): string
  call: (inputs: Tensor | Tensor[]) => Tensor
  inputSpec: readonly { readonly minNDim: number }[]
}

/**
 * Shares the dense layers of a tf.layers model among the ranks of a group, in place and with the same
 * kind of plan as `parallelize`. Afterwards each rank has its part of their weights, and `fit`,
 * `predict` and `evaluate` work as before, with the same batches on all ranks of the group. Dropout
 * drops the same values on all of them.
 *
 * The model must be built: give its first layer an `inputShape`. After `fit`, compile it again with a
 * new optimizer, because the old one has kept state of whole weights.
 *
 * @example
 * parallelizeLayers(model, { up: columnParallel(), down: rowParallel() }, group)
 * await model.fit(x, y, { shuffle: false })
 *
 * @throws ERR_TSR_ARGUMENT without a plan of styles or a group; when a name fits no layer or one that
 *   is not dense, a layer cannot be divided, or a part of it would not do what the whole does, because
 *   of an activation that needs all outputs, a regularizer, or a constraint other than `nonNeg`; when a
 *   layer adds random noise
 */
export function parallelizeLayers<M extends LayersModelLike & { getClassName(): string }>(
  model: M,
  plan: ParallelPlan,
  group: ProcessGroup,
): M {
  checkPlan(plan)
  checkGroup(group)
  const layers = model.layers as unknown as readonly DenseLayer[]
  const entries = Object.entries(plan).map(([glob, style]) => ({
    glob,
    style,
    fits: matchName(glob),
  }))
  const unknown = entries.find(({ fits }) => !layers.some(({ name }) => fits(name)))
  if (unknown !== undefined) {
    throw unknownLayer(
      unknown.glob,
      layers.map(({ name }) => name),
    )
  }
  if (group.size > 1) for (const layer of layers) drawAlike(layer)
  const row: { name: string; module: Module }[] = []
  for (const layer of layers) {
    row.push({ name: layer.name, module: other })
    const entry = entries.find(({ fits }) => fits(layer.name))
    if (entry === undefined) continue
    if (layer.getClassName() !== 'Dense') {
      const expected = 'names of dense layers'
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'plan', value: layer.name, expected })
    }
    if (group.size === 1) continue
    const module = share(layer, entry.style, group)
    row.splice(-1, 1, { name: layer.name, module })
  }
  // in other models layers do not follow one another in the order of the list
  if (model.getClassName() === 'Sequential') connectRow(row)
  else for (const layer of row) connect(layer, undefined)
  return model
}

/** Stands for any other layer in a row. */
const other: Module = { parameters: [], forward: (x) => x }

function share(layer: DenseLayer, style: ParallelStyle, group: ProcessGroup): Module {
  const shared = style(linearOf(layer), group, layer.name)
  try {
    checkPart(layer, shared)
  } catch (error) {
    disposeModule(shared)
    throw error
  }
  replaceCall(layer, shared)
  return shared
}

/** The layer as a module with copies of its weights, which the style shards. */
function linearOf({ name, kernel, bias }: DenseLayer): Module {
  const copy = (key: string, value: Tensor): Parameter => ({
    name: `${name}.${key}`,
    shape: value.shape,
    value: tf.keep(tf.clone(value)),
  })
  const weight = copy('kernel', kernel.val)
  const zeros = bias === null ? tf.zeros([kernel.shape[1]!]) : undefined
  const shift = copy('bias', zeros ?? bias!.val)
  zeros?.dispose()
  const linear = { kind: 'linear', weight, bias: shift, activation: 'linear' } as const
  return { ...linear, parameters: [weight, shift], forward: (x: Tensor) => x }
}

function replaceCall(layer: DenseLayer, shared: Module): void {
  const [weight, bias] = shared.parameters as [Parameter, Parameter]
  adopt(layer.kernel, weight)
  if (layer.bias !== null) adopt(layer.bias, bias)
  // the input has another width if the layer before is shared
  layer.inputSpec = [{ minNDim: 2 }]
  layer.call = (inputs) =>
    tf.tidy(() => {
      const y = shared.forward(Array.isArray(inputs) ? inputs[0]! : inputs)
      return layer.activation.apply(y)
    })
}

/** Makes this rank's part the variable of the layer and its optimizer, and of the module. */
function adopt(variable: DenseVariable, parameter: Parameter): void {
  const { shard } = parameter
  const part = tf.variable(parameter.value, variable.val.trainable)
  parameter.value.dispose()
  variable.val.dispose()
  variable.val = part
  variable.shape = parameter.shape
  if (shard !== undefined) {
    variable.shard = shard
    // DistributedOptimizer sees the tf.Variable only
    Object.assign(part, { shard })
  }
  parameter.value = part
}

/** Activations whose outputs each depend on one input. */
const ELEMENTWISE = new Set([
  ...['linear', 'relu', 'relu6', 'elu', 'selu', 'gelu', 'gelu_new', 'mish', 'swish'],
  ...['sigmoid', 'hardSigmoid', 'softplus', 'softsign', 'tanh'],
])

/**
 * @param shared - this rank's part of the layer
 * @throws ERR_TSR_ARGUMENT when a part of the layer would not do what the whole does
 */
function checkPart(layer: DenseOptions, shared: Module): void {
  const [kernel, bias] = shared.parameters
  const hasSomeOutputs = isColumnParallel(shared) && shared.gather === 'none'
  if (hasSomeOutputs && !ELEMENTWISE.has(layer.activation.getClassName())) {
    refuse(layer, 'activation', "gather: 'replicated' before an activation that needs all outputs")
  }
  const fits = 'none for weights that ranks share, because it would apply to a part of them'
  if (hasSomeOutputs && layer.activityRegularizer) refuse(layer, 'activityRegularizer', fits)
  for (const [weight, part] of [
    ['kernel', kernel],
    ['bias', bias],
  ] as const) {
    if (part?.shard === undefined) continue
    if (layer[`${weight}Regularizer`]) refuse(layer, `${weight}Regularizer`, fits)
    const constraint = layer[`${weight}Constraint`]
    if (constraint && constraint.getClassName() !== 'NonNeg') {
      refuse(layer, `${weight}Constraint`, fits)
    }
  }
}

function refuse(layer: DenseOptions, key: Exclude<keyof DenseOptions, 'name'>, expected: string) {
  const value = layer[key]!.getClassName()
  throw tsrError('ERR_TSR_ARGUMENT', { name: `${key} of ${layer.name}`, value, expected })
}

/** The properties of a tf.layers layer that are used to make it draw the same values on all ranks. */
interface RandomLayer {
  readonly name: string
  getClassName(): string
  seed?: number
  call(inputs: unknown, options: unknown): Tensor | Tensor[]
}

const DROPOUT = new Set(['Dropout', 'SpatialDropout1D'])
const NOISE = new Set(['GaussianNoise', 'GaussianDropout', 'AlphaDropout'])

/**
 * Makes a layer draw the same random values on all ranks, from its name and the number of the call,
 * because shared layers need the same input on all ranks. A seed that the user has set stays.
 *
 * @throws ERR_TSR_ARGUMENT for a layer of noise that takes no seed
 */
function drawAlike(layer: RandomLayer): void {
  const kind = layer.getClassName()
  if (NOISE.has(kind)) {
    const expected = 'no layer of random noise, which would differ from rank to rank'
    throw tsrError('ERR_TSR_ARGUMENT', { name: `layer ${layer.name}`, value: kind, expected })
  }
  if (!DROPOUT.has(kind) || typeof layer.seed === 'number') return
  const draw = generator(layer.name, 0)
  const call = layer.call.bind(layer)
  layer.call = (inputs, options) => {
    layer.seed = draw()
    try {
      return call(inputs, options)
    } finally {
      delete layer.seed
    }
  }
}
