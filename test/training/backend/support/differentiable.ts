import { record, tf, type Tensor } from '@tsrun/training'
import { imageCases } from './differentiable-images.ts'

/** An operation, and inputs at which it is differentiable. */
export interface Case {
  /** The kernel whose gradient is tried. */
  readonly kernel: string
  /** What is special about this case. */
  readonly note?: string
  readonly inputs: readonly (readonly number[])[]
  /** The range of the values of the inputs; default [-1, 1]. */
  readonly range?: readonly [number, number]
  readonly compute: (...inputs: Tensor[]) => Tensor
}

const unary = (
  kernel: string,
  compute: (x: Tensor) => Tensor,
  range?: readonly [number, number],
): Case => ({ kernel, inputs: [[2, 3, 4]], compute, ...(range && { range }) })

/** Also broadcast, unless TensorFlow.js has gradients of the wrong shape then. */
const binary = (
  kernel: string,
  compute: (a: Tensor, b: Tensor) => Tensor,
  range?: readonly [number, number],
): Case[] => [
  {
    kernel,
    inputs: [
      [2, 3, 4],
      [2, 3, 4],
    ],
    compute,
    ...(range && { range }),
  },
  {
    kernel,
    note: 'broadcast',
    inputs: [
      [2, 3, 4],
      [3, 1],
    ],
    compute,
    ...(range && { range }),
  },
]

/** The type that an operation asks for. The tests know the shapes. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
const as = <T extends Tensor>(x: Tensor): T => x as T
const ids = (...values: number[]) => tf.tensor1d(values, 'int32')
/** A condition of any shape. */
const alternating = (...shape: number[]) =>
  tf.tensor(
    Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => i % 3 > 0),
    shape,
    'bool',
  )

/** Constant or piecewise constant: the gradient is zero. */
const flat: readonly Case[] = [
  unary('Ceil', tf.ceil),
  unary('Floor', tf.floor),
  unary('Round', tf.round),
  unary('Sign', tf.sign),
  unary('Step', (x) => tf.step(x, 0.25)),
  unary('IsFinite', (x) => tf.mul(tf.cast(tf.isFinite(x), 'float32'), x)),
  unary('IsInf', (x) => tf.mul(tf.cast(tf.isInf(x), 'float32'), x)),
  unary('IsNan', (x) => tf.mul(tf.cast(tf.isNaN(x), 'float32'), x)),
  unary('ArgMax', (x) => tf.cast(tf.argMax(x, 1), 'float32')),
  unary('ArgMin', (x) => tf.cast(tf.argMin(x, 2), 'float32')),
  unary('OnesLike', (x) => tf.mul(tf.onesLike(x), x)),
  unary('ZerosLike', (x) => tf.add(tf.zerosLike(x), x)),
  unary('OneHot', (x) => tf.mul(tf.oneHot(tf.cast(x, 'int32'), 4, 1, 0, 'float32'), 2)),
  ...binary('GreaterEqual', (a, b) => tf.mul(tf.cast(tf.greaterEqual(a, b), 'float32'), a)),
  ...binary('FloorDiv', (a, b) => tf.floorDiv(a, b), [1, 4]),
]

const elementwise: readonly Case[] = [
  unary('Abs', tf.abs),
  unary('Acos', tf.acos, [-0.9, 0.9]),
  unary('Acosh', tf.acosh, [1.5, 4]),
  unary('Asin', tf.asin, [-0.9, 0.9]),
  unary('Asinh', tf.asinh),
  unary('Atan', tf.atan),
  unary('Atanh', tf.atanh, [-0.9, 0.9]),
  unary(
    'Cast',
    (x) => tf.mul(tf.cast(x, 'float32'), tf.cast(tf.cast(x, 'int32'), 'float32')),
    [1, 5],
  ),
  unary('ClipByValue', (x) => tf.clipByValue(x, -0.5, 0.5)),
  unary('Cos', tf.cos),
  unary('Cosh', tf.cosh),
  unary('Elu', tf.elu),
  unary('Erf', tf.erf),
  unary('Exp', tf.exp),
  unary('Expm1', tf.expm1),
  unary('Identity', (x) => tf.clone(x)),
  unary('LeakyRelu', (x) => tf.leakyRelu(x, 0.3)),
  unary('Log', tf.log, [0.2, 3]),
  unary('Log1p', tf.log1p, [0.2, 3]),
  unary('Neg', tf.neg),
  unary('Reciprocal', tf.reciprocal, [0.2, 3]),
  unary('Relu', tf.relu),
  unary('Relu6', tf.relu6, [-2, 8]),
  unary('Rsqrt', tf.rsqrt, [0.2, 3]),
  unary('Selu', tf.selu),
  unary('Sigmoid', tf.sigmoid),
  unary('Sin', tf.sin),
  unary('Sinh', tf.sinh),
  unary('Softplus', tf.softplus),
  unary('Sqrt', tf.sqrt, [0.2, 3]),
  unary('Square', tf.square),
  unary('Tan', tf.tan),
  unary('Tanh', tf.tanh),
  ...binary('Add', tf.add),
  ...binary('Atan2', (a, b) => tf.atan2(a, b), [0.3, 2]),
  binary('Maximum', tf.maximum)[0]!,
  binary('Minimum', tf.minimum)[0]!,
  ...binary('Mod', tf.mod, [1, 3]),
  ...binary('Multiply', tf.mul),
  ...binary('Pow', tf.pow, [0.5, 2]),
  ...binary('RealDiv', tf.div, [0.5, 2]),
  binary('SquaredDifference', tf.squaredDifference)[0]!,
  ...binary('Sub', tf.sub),
  {
    kernel: 'Prelu',
    inputs: [
      [2, 3, 4],
      [3, 4],
    ],
    compute: (x, a) => tf.prelu(x, a),
  },
  {
    kernel: 'Select',
    inputs: [
      [2, 3],
      [2, 3],
    ],
    compute: (a, b) => tf.where(alternating(2, 3), a, b),
  },
  {
    kernel: 'AddN',
    inputs: [
      [2, 3],
      [2, 3],
      [2, 3],
    ],
    compute: (a, b, c) => tf.addN([a, b, c]),
  },
]

const reductions: readonly Case[] = [
  unary('Max', (x) => tf.max(x, 1)),
  unary('Min', (x) => tf.min(x, [0, 2], true)),
  unary('Mean', (x) => tf.mean(x, 1)),
  unary('Sum', (x) => tf.sum(x, 2)),
  unary('Prod', (x) => tf.prod(x, 1), [0.5, 2]),
  unary('Softmax', (x) => tf.softmax(x)),
  unary('LogSoftmax', (x) => tf.logSoftmax(x)),
  unary('Cumsum', (x) => tf.cumsum(x, 1)),
  { ...unary('Cumsum', (x) => tf.cumsum(x, 2, true, true)), note: 'exclusive, reverse' },
  {
    kernel: 'UnsortedSegmentSum',
    inputs: [[5, 3]],
    compute: (x) => tf.unsortedSegmentSum(x, ids(0, 2, 1, 2, 0), 3),
  },
]

const shapes: readonly Case[] = [
  unary('BroadcastTo', (x) => tf.broadcastTo(tf.slice(x, [0, 0, 0], [2, 1, 4]), [2, 3, 4])),
  unary('ExpandDims', (x) => tf.expandDims(x, 1)),
  unary('Reshape', (x) => tf.reshape(x, [4, 6])),
  unary('Reverse', (x) => tf.reverse(x, [0, 2])),
  unary('Slice', (x) => tf.slice(x, [0, 1, 1], [2, 2, 2])),
  unary('Tile', (x) => tf.tile(x, [2, 1, 3])),
  { kernel: 'Tile', note: 'of a vector', inputs: [[3]], compute: (x) => tf.tile(x, [4]) },
  { kernel: 'Tile', note: 'of a matrix', inputs: [[2, 3]], compute: (x) => tf.tile(x, [2, 2]) },
  unary('Transpose', (x) => tf.transpose(x, [2, 0, 1])),
  unary('PadV2', (x) =>
    tf.pad(
      x,
      [
        [0, 1],
        [2, 0],
        [1, 1],
      ],
      3,
    ),
  ),
  unary('MirrorPad', (x) =>
    tf.mirrorPad(
      x,
      [
        [0, 0],
        [1, 1],
        [0, 0],
      ],
      'symmetric',
    ),
  ),
  unary('SplitV', (x) => tf.mul(tf.split(x, [1, 2], 1)[1]!, 2)),
  unary('Unpack', (x) => tf.mul(tf.unstack(x, 1)[1]!, 2)),
  {
    kernel: 'Pack',
    inputs: [
      [2, 3],
      [2, 3],
    ],
    compute: (a, b) => tf.stack([a, b], 1),
  },
  {
    kernel: 'Concat',
    inputs: [
      [2, 3],
      [2, 1],
    ],
    compute: (a, b) => tf.concat([a, b], 1),
  },
  { kernel: 'GatherV2', inputs: [[5, 3]], compute: (x) => tf.gather(x, ids(4, 0, 4)) },
  {
    kernel: 'GatherV2',
    note: 'axis 1',
    inputs: [[2, 4, 3]],
    compute: (x) => tf.gather(x, ids(3, 0, 3, 1), 1),
  },
  {
    kernel: 'GatherV2',
    note: 'a matrix of indices',
    inputs: [[4, 3]],
    compute: (x) => tf.gather(x, tf.tensor2d([0, 1, 1, 3], [2, 2], 'int32'), 0),
  },
  {
    kernel: 'GatherV2',
    note: 'batches',
    inputs: [[2, 4, 3]],
    compute: (x) => tf.gather(x, tf.tensor2d([0, 1, 1, 3], [2, 2], 'int32'), 1, 1),
  },
  {
    kernel: 'BatchToSpaceND',
    inputs: [[4, 2, 2, 1]],
    compute: (x) =>
      tf.batchToSpaceND(
        x,
        [2, 2],
        [
          [0, 0],
          [0, 1],
        ],
      ),
  },
  {
    kernel: 'SpaceToBatchND',
    inputs: [[1, 4, 4, 1]],
    compute: (x) =>
      tf.spaceToBatchND(
        x,
        [2, 2],
        [
          [0, 0],
          [0, 0],
        ],
      ),
  },
  {
    kernel: 'ResizeBilinear',
    inputs: [[1, 3, 4, 2]],
    compute: (x) => tf.image.resizeBilinear(as(x), [5, 7]),
  },
  {
    kernel: 'ResizeNearestNeighbor',
    inputs: [[1, 3, 4, 2]],
    compute: (x) => tf.image.resizeNearestNeighbor(as(x), [6, 8]),
  },
]

const products: readonly Case[] = [
  ...[false, true].flatMap((a) =>
    [false, true].map((b): Case => ({
      kernel: 'BatchMatMul',
      note: `transposed ${String(a)} ${String(b)}`,
      inputs: [a ? [2, 4, 3] : [2, 3, 4], b ? [2, 5, 4] : [2, 4, 5]],
      compute: (x, y) => tf.matMul(x, y, a, b),
    })),
  ),
  {
    kernel: 'BatchMatMul',
    note: 'fused',
    inputs: [[3, 4], [4, 5], [5]],
    compute: (a, b, bias) => tf.fused.matMul({ a, b, bias, activation: 'relu' }),
  },
  {
    kernel: 'BatchMatMul',
    note: 'fused, another activation',
    inputs: [[3, 4], [4, 5], [5]],
    compute: (a, b, bias) => tf.fused.matMul({ a, b, bias, activation: 'elu' }),
  },
]

const einsum = (equation: string, ...inputs: number[][]): Case => ({
  kernel: 'Einsum',
  note: equation,
  inputs,
  compute: (...tensors) => tf.einsum(equation, ...tensors),
})

const einsums: readonly Case[] = [
  einsum('bij,jk->bik', [2, 3, 4], [4, 5]),
  einsum('bqhc,bkhc->bhqk', [2, 3, 2, 4], [2, 5, 2, 4]),
  einsum('ij,kl->kjil', [2, 3], [4, 5]),
  einsum('i,i->', [5], [5]),
  einsum('ijk->kj', [2, 3, 4]),
  einsum('ij->', [2, 3]),
]

export const cases: readonly Case[] = [
  ...flat,
  ...elementwise,
  ...reductions,
  ...shapes,
  ...products,
  ...einsums,
  ...imageCases,
]

/** The output, and the gradients of its sum with weights, for each input. */
export function differentiate({ inputs, range = [-1, 1], compute }: Case): Float32Array[] {
  const [from, to] = range
  const parameters = inputs.map((shape, k) => {
    const length = shape.reduce((a, b) => a * b)
    const value = (i: number) => from + ((to - from) * (1 + Math.sin(1 + 12.9 * (i + 31 * k)))) / 2
    const values = Float32Array.from({ length }, (_, i) => value(i))
    return { name: String(k), shape: [...shape], value: tf.tensor(values, [...shape]) }
  })
  const gradients = parameters.map(({ value }) => new Float32Array(value.size))
  const pass = record(
    () => compute(...parameters.map(({ value }) => value)),
    parameters[0]!.value,
    parameters,
    { needsInputGradient: false },
  )
  const dy = tf.tensor(
    Float32Array.from({ length: pass.value.size }, (_, i) => Math.cos(3 * i)),
    pass.value.shape,
  )
  const output = pass.value.dataSync<'float32'>().slice()
  pass.backward(dy, ({ name }, gradient) => {
    gradients[Number(name)]!.set(gradient.dataSync())
    gradient.dispose()
  })
  pass.dispose()
  tf.dispose([dy, ...parameters.map(({ value }) => value)])
  return [output, ...gradients]
}
