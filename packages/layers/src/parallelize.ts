import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor, Variable } from '@tensorflow/tfjs-core'
import {
  disposeModule,
  parallelize,
  parametersOf,
  tf,
  type Module,
  type Parameter,
  type ParallelPlan,
  type Shard,
} from '@tsrun/training'
import type { LayersModel } from './model.ts'
import { drawAlike } from './random-layers.ts'

interface Named {
  getClassName(): string
}

/** Properties of a dense layer of tf.layers that may require the whole layer. */
interface DenseOptions extends Readonly<
  Record<`${'kernel' | 'bias' | 'activity'}Regularizer` | `${Weight}Constraint`, Named | null>
> {
  readonly name: string
  readonly activation: Named & { apply(x: Tensor): Tensor }
}

type Weight = 'kernel' | 'bias'

interface DenseVariable {
  val: Variable
  shape: readonly number[]
  shard?: Shard
}

interface DenseLayer extends DenseOptions {
  readonly kernel: DenseVariable
  readonly bias: DenseVariable | null
  getClassName(): string
  call: (inputs: Tensor | Tensor[]) => Tensor
  inputSpec: readonly { readonly minNDim: number }[]
}

/**
 * Enables tensor parallelism for dense layers of a tf.layers model, in place: each rank then has a part
 * of their weights. The plan is the same as for `parallelize`. `fit`, `predict` and `evaluate` work as
 * before, but all ranks of the group must pass the same batches. Dropout drops the same values on all
 * ranks.
 *
 * The model must be built: give its first layer an `inputShape`. To train a model that was fitted before,
 * compile it again with a new optimizer, because the old one has state for the whole weights.
 *
 * @example
 * parallelizeLayers(model, { up: columnParallel(), down: rowParallel() }, group)
 * await model.fit(x, y, { shuffle: false })
 *
 * @throws ERR_TSR_ARGUMENT without a valid plan or a group; when a name matches no layer or a layer
 *   that is not dense; when a layer cannot be divided, or its parts would compute different
 *   results: with an activation that needs all outputs, a regularizer, or a constraint other than
 *   `nonNeg`; when a layer adds random noise
 */
export function parallelizeLayers<M extends LayersModel>(
  model: M,
  plan: ParallelPlan,
  group: ProcessGroup,
): M {
  const layers = model.layers as unknown as readonly DenseLayer[]
  const before = layers.map((layer) =>
    layer.getClassName() === 'Dense' ? linearOf(layer) : other(),
  )
  const children = Object.fromEntries(layers.map(({ name }, i) => [name, before[i]!]))
  const dispose = () => {
    for (const child of Object.values(children)) disposeModule(child)
  }
  try {
    parallelize(rowOf(children, model), plan, group)
    if (group.size > 1) layers.forEach(drawAlike)
    for (const [i, layer] of layers.entries()) {
      if (children[layer.name] !== before[i]) checkPart(layer, children[layer.name]!)
    }
  } catch (error) {
    dispose()
    throw error
  }
  for (const [i, layer] of layers.entries()) {
    const shared = children[layer.name]!
    if (shared === before[i]) continue
    replaceCall(layer, shared)
    children[layer.name] = other()
  }
  dispose()
  return model
}

const other = (): Module => ({ parameters: [], forward: (x) => x })

/** Makes a module of the layers. For a sequential model, its `layers` lists them in order. */
function rowOf(children: Record<string, Module>, model: LayersModel): Module {
  const row = {
    children,
    get parameters() {
      return parametersOf(children)
    },
    forward: (x: Tensor) => x,
  }
  if (model.getClassName() !== 'Sequential') return row
  return Object.defineProperty(row, 'layers', {
    get: () => model.layers.map(({ name }) => children[name]),
  })
}

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

function replaceCall(layer: DenseLayer, shared: Module) {
  const [weight, bias] = shared.parameters as [Parameter, Parameter]
  adopt(layer.kernel, weight)
  if (layer.bias !== null) adopt(layer.bias, bias)
  // The layer accepts other input widths now, because the previous layer may be sharded.
  layer.inputSpec = [{ minNDim: 2 }]
  layer.call = (inputs) =>
    tf.tidy(() => {
      const y = shared.forward(Array.isArray(inputs) ? inputs[0]! : inputs)
      return layer.activation.apply(y)
    })
}

/** Replaces the variable of a layer by the tensor of a parameter. */
function adopt(variable: DenseVariable, parameter: Parameter) {
  const { shard } = parameter
  const part = tf.variable(parameter.value, variable.val.trainable)
  parameter.value.dispose()
  variable.val.dispose()
  variable.val = part
  variable.shape = parameter.shape
  if (shard !== undefined) {
    variable.shard = shard
    // Set `shard` on the tf.Variable too: `DistributedOptimizer` sees only the variable.
    Object.assign(part, { shard })
  }
  parameter.value = part
}

const ELEMENTWISE = new Set([
  'linear',
  'relu',
  'relu6',
  'elu',
  'selu',
  'gelu',
  'gelu_new',
  'mish',
  'swish',
  'sigmoid',
  'hardSigmoid',
  'softplus',
  'softsign',
  'tanh',
])

/** Checks that the parts of a dense layer compute the same results as the whole layer. */
function checkPart(layer: DenseOptions, shared: Module) {
  const [kernel, bias] = shared.parameters
  const { kind, gather } = shared as Module & { readonly gather?: string }
  const hasSomeOutputs = kind === 'column-parallel' && gather === 'none'
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
  throw argumentError(`${key} of ${layer.name}`, layer[key]!.getClassName(), expected)
}
