import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor, Variable } from '@tensorflow/tfjs-core'
import { tf } from '../../backend/tfjs.ts'
import type { LayersModelLike } from '../../checkpoint/layers.ts'
import { disposeModule, type Module } from '../../model/module.ts'
import { matchName } from '../../model/name-patterns.ts'
import type { Parameter, Shard } from '../../model/parameter.ts'
import { checkGroup } from '../check-group.ts'
import { checkPlan } from './check-plan.ts'
import { checkDense, type DenseOptions } from './dense-checks.ts'
import type { ParallelPlan } from './parallelize.ts'
import { connect, connectRow } from './partial-gathers.ts'
import { drawAlike } from './random-layers.ts'
import { markShard } from './shard.ts'
import type { ParallelStyle } from './styles.ts'

/** What is used of a weight; `val` and `shape` are what TensorFlow.js reads them from. */
interface DenseVariable {
  readonly originalName: string
  val: Variable
  shape: readonly number[]
  shard?: Shard
}

/** What is used of a tf.layers.dense. */
interface DenseLayer extends DenseOptions {
  readonly kernel: DenseVariable
  readonly bias: DenseVariable | null
  getClassName(): string
  call: (inputs: Tensor | Tensor[]) => Tensor
  inputSpec: readonly { readonly minNDim: number }[]
}

/**
 * Shares the dense layers of a tf.layers model among the ranks of a group, in place and by the same
 * plan as `parallelize`: by the names of layers. Afterwards each rank has its part of their weights, and
 * `fit`, `predict` and `evaluate` work as before, on the same batches on all ranks of the group; dropout
 * drops the same values on all of them.
 *
 * The model must be built: give its first layer an `inputShape`. After `fit`, compile it again with a
 * new optimizer: what the old one keeps is of whole weights.
 *
 * @example
 * parallelizeLayers(model, { up: columnParallel(), down: rowParallel() }, group)
 * await model.fit(x, y, { shuffle: false })
 *
 * @throws ERR_TSR_ARGUMENT without a plan of styles or a group, when the plan names no layer or one
 *   that is not dense, a layer does not divide, or a part of one would not do what the whole does: with
 *   an activation that needs all outputs, with a regularizer, with a constraint other than `nonNeg`;
 *   when a layer adds random noise
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
    const names = layers.map(({ name }) => name).join(', ')
    throw refusal(unknown.glob, `names of layers: ${names}`)
  }
  if (group.size > 1) for (const layer of layers) drawAlike(layer)
  const row: { name: string; module: Module }[] = []
  for (const layer of layers) {
    row.push({ name: layer.name, module: other })
    const entry = entries.find(({ fits }) => fits(layer.name))
    if (entry === undefined) continue
    if (layer.getClassName() !== 'Dense') throw refusal(layer.name, 'dense layers')
    if (group.size === 1) continue
    const module = share(layer, entry.style, group)
    row.splice(-1, 1, { name: layer.name, module })
  }
  // elsewhere the order of layers is not that of their list
  if (model.getClassName() === 'Sequential') connectRow(row)
  else for (const layer of row) connect(layer, undefined)
  return model
}

/** Whatever else is in a row of layers. */
const other: Module = { parameters: [], forward: (x) => x }

function share(layer: DenseLayer, style: ParallelStyle, group: ProcessGroup): Module {
  const shared = style(linearOf(layer), group, layer.name)
  try {
    checkDense(layer, shared)
  } catch (error) {
    disposeModule(shared)
    throw error
  }
  replaceCall(layer, shared)
  return shared
}

/** The layer as one of ours: with copies of its weights, which the style cuts. */
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
  // others come in where a layer before is shared
  layer.inputSpec = [{ minNDim: 2 }]
  layer.call = (inputs) =>
    tf.tidy(() => {
      const y = shared.forward(Array.isArray(inputs) ? inputs[0]! : inputs)
      return layer.activation.apply(y)
    })
}

/** Makes a variable of this rank's part, for the layer and its optimizer and for the shared layer. */
function adopt(variable: DenseVariable, parameter: Parameter): void {
  const part = tf.variable(parameter.value, variable.val.trainable)
  parameter.value.dispose()
  variable.val.dispose()
  variable.val = part
  variable.shape = parameter.shape
  if (parameter.shard !== undefined) {
    variable.shard = parameter.shard
    markShard(part, parameter.shard)
  }
  parameter.value = part
}

function refusal(value: string, expected: string) {
  return tsrError('ERR_TSR_ARGUMENT', { name: 'plan', value, expected })
}
