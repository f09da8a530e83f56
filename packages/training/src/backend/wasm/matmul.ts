import type { NamedAttrMap, TensorInfo } from '@tensorflow/tfjs-core'
import { runKernel, tf, type KernelCall } from '../../tfjs/tfjs.ts'
import { heapOf, type WasmModule } from './heap.ts'
import { replaceOrRunOnCpu } from './replaced-kernels.ts'

interface Attributes {
  readonly transposeA: boolean
  readonly transposeB: boolean
  readonly activation?: string
  readonly leakyreluAlpha?: number
}

/** The kernels of activations that are computed after the matrix product, not as part of the product. */
export const ACTIVATIONS: Readonly<Record<string, string>> = {
  elu: 'Elu',
  leakyrelu: 'LeakyRelu',
  prelu: 'Prelu',
  relu6: 'Relu6',
  sigmoid: 'Sigmoid',
}

type MatMulCall = KernelCall<'a' | 'b', Attributes, WasmModule>

/**
 * Replaces the matrix products of the wasm backend, with and without a bias and an activation. The
 * original kernels use XNNPACK only for products without a transpose and a batch. All other products,
 * including those of every gradient, run in a scalar loop (tfjs-backend-wasm, `batch_mat_mul_impl.cc`).
 *
 * XNNPACK also keeps a packed copy of each right operand. If weights change in every step, packing costs
 * as much as a small product, and writing new weights in place has no effect. With a transpose and an
 * activation other than ReLU, the original kernel adds the bias only to the first row.
 */
export function installMatMul(): void {
  for (const kernelName of ['BatchMatMul', '_FusedMatMul']) {
    replaceOrRunOnCpu<MatMulCall>(
      kernelName,
      (call) => activated(kernelName, call) ?? multiplyBatch(call),
    )
  }
}

/** Computes a product or a convolution, then its activation if that is among `kernels`. */
export function activated(
  kernelName: string,
  { inputs, attrs }: KernelCall<never, Pick<Attributes, 'activation' | 'leakyreluAlpha'>>,
  kernels = ACTIVATIONS,
): TensorInfo | undefined {
  const activation = kernels[attrs.activation ?? 'linear']
  if (activation === undefined) return undefined
  const { preluActivationWeights: alpha, ...others } = inputs
  const operands = others as Readonly<Record<string, TensorInfo>>
  return tf.tidy(() => {
    const linear = { ...attrs, activation: 'linear' } as unknown as NamedAttrMap
    const x = runKernel(kernelName, operands, linear)
    return runKernel(activation, alpha === undefined ? { x } : { x, alpha }, {
      alpha: attrs.leakyreluAlpha ?? 0,
    })
  })
}

function matrixOf({ shape }: TensorInfo, transposed: boolean): [rows: number, columns: number] {
  const [rows, columns] = [shape.at(-2)!, shape.at(-1)!]
  return transposed ? [columns, rows] : [rows, columns]
}

/** Computes a batched product with broadcast leading axes. Returns undefined for other operands. */
function multiplyBatch({ inputs, attrs, backend }: MatMulCall): TensorInfo | undefined {
  const { a, b, bias } = inputs
  const { activation = 'linear', transposeA, transposeB } = attrs
  const [m, k] = matrixOf(a, transposeA)
  const [depth, n] = matrixOf(b, transposeB)
  const batch = broadcast(a.shape.slice(0, -2), b.shape.slice(0, -2))
  const isPossible =
    a.dtype === 'float32' &&
    b.dtype === 'float32' &&
    k === depth &&
    k > 0 &&
    (bias === undefined || (bias.shape.length === 1 && bias.shape[0] === n)) &&
    (activation === 'linear' || activation === 'relu')
  if (batch === undefined || !isPossible) return undefined
  const heap = heapOf(backend)
  const result = backend.makeOutput([...batch.shape, m, n], 'float32')
  const [out, left, right] = [heap.addressOf(result), heap.addressOf(a), heap.addressOf(b)]
  const start = bias === undefined ? 0 : heap.addressOf(bias)
  batch.pairs.forEach(([i, j], index) => {
    heap.multiply(
      out + 4 * m * n * index,
      { at: left + 4 * m * k * i, transposed: transposeA },
      { at: right + 4 * k * n * j, transposed: transposeB },
      [m, n, k],
      { start, relu: activation === 'relu' },
    )
  })
  return result
}

/** Returns the broadcast axes, and the factors of each matrix; undefined for incompatible shapes. */
function broadcast(a: readonly number[], b: readonly number[]) {
  let shape: number[]
  try {
    shape = tf.broadcast_util.assertAndGetBroadcastShape([...a], [...b])
  } catch {
    return undefined
  }
  let pairs: [number, number][] = [[0, 0]]
  shape.forEach((size, axis) => {
    const [inA, inB] = [a, b].map((axes) => axes[axis - shape.length + axes.length] ?? 1)
    pairs = pairs.flatMap(([i, j]) =>
      Array.from({ length: size }, (_, at): [number, number] => [
        i * inA! + (inA === 1 ? 0 : at),
        j * inB! + (inB === 1 ? 0 : at),
      ]),
    )
  })
  return { shape, pairs }
}
