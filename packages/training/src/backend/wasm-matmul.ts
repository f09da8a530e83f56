import type { KernelFunc, TensorInfo } from '@tensorflow/tfjs-core'
import { tf } from './tensorflow.ts'
import { transposeInto } from './transpose.ts'

interface WasmBackend {
  typedArrayFromHeap(tensor: TensorInfo): Float32Array
  makeOutput(shape: number[], dtype: 'float32'): TensorInfo
  disposeData(dataId: object): void
}

interface MatMulCall {
  readonly inputs: { readonly a: TensorInfo; readonly b: TensorInfo }
  readonly attrs: { readonly transposeA: boolean; readonly transposeB: boolean }
  readonly backend: WasmBackend
}

type MatMul = (call: MatMulCall) => TensorInfo

/**
 * Makes `matMul` with transposed 2-D operands nearly as fast as without, on the wasm backend.
 *
 * Its kernel hands only untransposed, unbatched products to XNNPACK; the rest goes through a scalar
 * loop (tfjs-backend-wasm, `batch_mat_mul_impl.cc`), and the gradients of matMul always transpose.
 * Here the operands are transposed first, the smaller ones: XNNPACK also packs its right operand
 * anew whenever it meets one, which costs more than the product when a small batch meets a large
 * weight. Batched 3-D products stay as they are.
 */
export function installTransposedMatMul(): void {
  const matMul = tf.getKernel('BatchMatMul', 'wasm').kernelFunc as unknown as MatMul
  tf.unregisterKernel('BatchMatMul', 'wasm')
  tf.registerKernel({
    kernelName: 'BatchMatMul',
    backendName: 'wasm',
    kernelFunc: transposedMatMul(matMul) as unknown as KernelFunc,
  })
}

function transposedMatMul(matMul: MatMul): MatMul {
  return (call) => {
    const { inputs, attrs, backend } = call
    const { a, b } = inputs
    const { transposeA, transposeB } = attrs
    if ((!transposeA && !transposeB) || !isMatrix(a) || !isMatrix(b)) return matMul(call)
    const multiply = (left: TensorInfo, right: TensorInfo) =>
      matMul({
        inputs: { a: left, b: right },
        attrs: { transposeA: false, transposeB: false },
        backend,
      })
    const free = (tensor: TensorInfo) => {
      backend.disposeData(tensor.dataId)
    }
    if (transposeB && !transposeA && rowsOf(a) < rowsOf(b)) {
      // a bT = (b aT)T: leaves the large b as it is.
      const right = transpose(a, backend)
      const product = multiply(b, right)
      const out = transpose(product, backend)
      free(right)
      free(product)
      return out
    }
    const left = transposeA ? transpose(a, backend) : a
    const right = transposeB ? transpose(b, backend) : b
    const out = multiply(left, right)
    if (transposeA) free(left)
    if (transposeB) free(right)
    return out
  }
}

function transpose(x: TensorInfo, backend: WasmBackend): TensorInfo {
  const [rows, columns] = x.shape.slice(-2) as [number, number]
  const out = backend.makeOutput([...x.shape.slice(0, -2), columns, rows], 'float32')
  transposeInto(backend.typedArrayFromHeap(out), backend.typedArrayFromHeap(x), rows, columns)
  return out
}

function isMatrix({ shape, dtype }: TensorInfo): boolean {
  return dtype === 'float32' && shape.slice(0, -2).every((size) => size === 1)
}

function rowsOf({ shape }: TensorInfo): number {
  return shape.at(-2)!
}
