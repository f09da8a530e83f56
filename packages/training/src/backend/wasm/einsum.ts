import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { contract } from '../../tfjs/einsum.ts'
import { replaceKernel, tf } from '../../tfjs/tfjs.ts'

interface EinsumCall {
  /** The operands. The engine passes tensors, not only their TensorInfo. */
  readonly inputs: readonly Tensor[]
  readonly attrs: { readonly equation: string }
}

/** Adds the kernel Einsum, which the wasm backend lacks. */
export function installEinsum(): void {
  replaceKernel('Einsum', 'wasm', () => einsum)
}

function einsum({ inputs, attrs }: EinsumCall): TensorInfo {
  const { decodeEinsumEquation, checkEinsumDimSizes } = tf.backend_util
  const { allDims, idDims } = decodeEinsumEquation(attrs.equation, inputs.length)
  checkEinsumDimSizes(allDims.length, idDims, [...inputs])
  const [operands, output] = attrs.equation.replace(/\s/g, '').split('->') as [string, string]
  const terms = operands.split(',').map((labels, i) => ({ tensor: inputs[i]!, labels }))
  return contract(terms, output)
}
