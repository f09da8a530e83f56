import type { TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf } from './host-arrays.ts'
import { replaceKernel, tf, type Tensor } from './tfjs.ts'

/** An operand of an einsum: a tensor, and one letter for each axis. */
interface Term {
  readonly tensor: Tensor
  readonly labels: string
}

/** Multiplies one or two terms and sums over all axes that `output` lacks. The caller disposes the result. */
function contract(terms: readonly Term[], output: string): Tensor {
  return tf.tidy(() => {
    const [a, b] = terms.map((term, i) => {
      const others = terms.filter((_, k) => k !== i).map(({ labels }) => labels)
      return summed(term, others.join('') + output)
    })
    return ordered(b === undefined ? a! : product(a!, b, output), output)
  })
}

function summed({ tensor, labels }: Term, others: string): Term {
  const axes = Array.from(labels).flatMap((label, axis) => (others.includes(label) ? [] : [axis]))
  if (axes.length === 0) return { tensor, labels }
  return { tensor: tf.sum(tensor, axes), labels: pick(labels, (label) => others.includes(label)) }
}

/** Computes a batched matrix product. The batch axes are those that both terms and the output have. */
function product(a: Term, b: Term, output: string): Term {
  const isShared = (label: string) => a.labels.includes(label) && b.labels.includes(label)
  const batch = pick(a.labels, (label) => isShared(label) && output.includes(label))
  const inner = pick(a.labels, (label) => isShared(label) && !output.includes(label))
  const rows = pick(a.labels, (label) => !isShared(label))
  const columns = pick(b.labels, (label) => !isShared(label))
  const sizes = new Map(
    [a, b].flatMap(({ tensor, labels }) =>
      Array.from(labels, (label, axis) => [label, tensor.shape[axis]!] as const),
    ),
  )
  const extent = (labels: string) => Array.from(labels, (label) => sizes.get(label)!)
  const [count, m, k, n] = [batch, rows, inner, columns].map((labels) => sizeOf(extent(labels)))
  const tensor = tf.matMul(
    tf.reshape(ordered(a, batch + rows + inner), [count!, m!, k!]),
    tf.reshape(ordered(b, batch + inner + columns), [count!, k!, n!]),
  )
  const labels = batch + rows + columns
  return { tensor: tf.reshape(tensor, extent(labels)), labels }
}

function ordered({ tensor, labels }: Term, order: string): Tensor {
  if (labels === order) return tf.clone(tensor)
  return tf.transpose(
    tensor,
    Array.from(order, (label) => labels.indexOf(label)),
  )
}

function pick(labels: string, takes: (label: string) => boolean): string {
  return Array.from(labels).filter(takes).join('')
}

interface EinsumCall {
  /** The operands. The engine passes tensors, not only their TensorInfo. */
  readonly inputs: readonly Tensor[]
  readonly attrs: { readonly equation: string }
}

/** Replaces the kernel Einsum: wasm lacks it, and on cpu it cannot sum over axes of a single operand. */
export function installEinsum(backendName: string): void {
  replaceKernel('Einsum', backendName, () => einsum)
}

function einsum({ inputs, attrs }: EinsumCall): TensorInfo {
  const { decodeEinsumEquation, checkEinsumDimSizes } = tf.backend_util
  const { allDims, idDims } = decodeEinsumEquation(attrs.equation, inputs.length)
  checkEinsumDimSizes(allDims.length, idDims, [...inputs])
  const { terms, output } = parse(attrs.equation, inputs)
  return contract(terms, output)
}

function parse(equation: string, operands: readonly Tensor[]) {
  const [inputs, output] = equation.replace(/\s/g, '').split('->') as [string, string]
  const labels = inputs.split(',')
  return { terms: operands.map((tensor, i): Term => ({ tensor, labels: labels[i]! })), output }
}

/** Adds the gradient of tf.einsum: for each operand, the einsum of `dy` and the other operand. */
export function registerEinsumGradient(): void {
  tf.registerGradient({
    kernelName: 'Einsum',
    saveAllInputs: true,
    gradFunc(dy, operands, attrs) {
      const { terms, output } = parse(attrs['equation'] as string, operands)
      const ofOutput = { tensor: dy as Tensor, labels: output }
      return Object.fromEntries(
        terms.map((term, i): [string, () => Tensor] => {
          const others = terms.filter((_, k) => k !== i)
          return [String(i), () => gradientOf(term, [ofOutput, ...others])]
        }),
      )
    },
  })
}

function gradientOf({ tensor, labels }: Term, factors: readonly Term[]): Tensor {
  const isKnown = Array.from(labels, (label) => factors.some((term) => term.labels.includes(label)))
  const known = Array.from(labels)
    .filter((_, axis) => isKnown[axis])
    .join('')
  // If the einsum only sums over an axis, all values along that axis have the same gradient.
  const shape = tensor.shape.map((size, axis) => (isKnown[axis] ? size : 1))
  return tf.broadcastTo(tf.reshape(contract(factors, known), shape), tensor.shape)
}
