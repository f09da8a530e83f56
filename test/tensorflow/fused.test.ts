import { fused, type GraphNode, type Value } from '../internals/tensorflow.ts'

const T = { name: 'T', type: 4, value: 1 }
const value = (node: number): Value => ({ node, output: 0 })
const node = (op: string, shape: readonly number[], ...inputs: number[]): GraphNode => ({
  op,
  attributes: [T],
  inputs: inputs.map(value),
  dtypes: [1],
  shapes: [shape],
})
const given = (...shape: number[]): GraphNode => node('Placeholder', shape)

/** The operations on which the outputs depend, from the last one. */
function behind(nodes: readonly GraphNode[], outputs: readonly number[]): string[] {
  const all = fused(nodes, outputs.map(value))
  const walk = (index: number): string[] => {
    const { op, inputs, attributes } = all[index]!
    const kinds = attributes.find(({ name }) => name === 'fused_ops')?.value
    const name = kinds === undefined ? op : `${op} ${(kinds as string[]).join('+')}`
    return [name, ...inputs.flatMap(({ node }) => walk(node))]
  }
  return outputs.flatMap(walk).filter((op) => op !== 'Placeholder' && op !== 'Const')
}

describe('fusion for TensorFlow on a GPU', () => {
  const [x, weight, bias] = [given(5, 3), given(3, 4), given(4)]
  const product = node('BatchMatMulV2', [5, 4], 0, 1)

  it('covers a product with its bias and ReLU', () => {
    const sum = node('Add', [5, 4], 3, 2)
    const nodes = [x, weight, bias, product, sum, node('Relu', [5, 4], 4)]
    expect(behind(nodes, [5])).toEqual(['_FusedMatMul BiasAdd+Relu'])
    expect(behind(nodes.slice(0, 5), [4])).toEqual(['_FusedMatMul BiasAdd'])
  })

  it('covers a product of a batch of one, and keeps its shape', () => {
    const batched = node('BatchMatMulV2', [1, 5, 4], 0, 1)
    const nodes = [given(1, 5, 3), given(1, 3, 4), bias, batched, node('AddV2', [1, 5, 4], 2, 3)]
    const matrices = ['Reshape', 'Reshape']
    expect(behind(nodes, [4])).toEqual(['Reshape', '_FusedMatMul BiasAdd', ...matrices])
  })

  it('covers the gradient of a ReLU', () => {
    const [dy, y] = [given(5, 4), given(5, 4)]
    const sign = node('Sign', [5, 4], 1)
    const step = node('Relu', [5, 4], 2)
    const nodes = [dy, y, sign, step, node('Cast', [5, 4], 3), node('Mul', [5, 4], 0, 4)]
    expect(behind(nodes, [5])).toEqual(['ReluGrad'])
  })

  it('does not apply if another operation needs an intermediate value', () => {
    const sum = node('Add', [5, 4], 3, 2)
    const nodes = [x, weight, bias, product, sum, node('Relu', [5, 4], 4)]
    expect(behind(nodes, [5, 3])).toEqual(['Relu', 'Add', 'BatchMatMulV2', 'BatchMatMulV2'])
    expect(behind(nodes, [5, 4])).toEqual([
      'Relu',
      ...Array<string>(2).fill('_FusedMatMul BiasAdd'),
    ])
  })

  it('does not apply if the addend is not a bias of the columns', () => {
    const sum = node('Add', [5, 4], 3, 2)
    expect(behind([x, weight, given(5, 1), product, sum], [4])).toEqual(['Add', 'BatchMatMulV2'])
    const wide = node('BatchMatMulV2', [2, 5, 4], 0, 1)
    const nodes = [given(2, 5, 3), given(2, 3, 4), bias, wide, node('Add', [2, 5, 4], 3, 2)]
    expect(behind(nodes, [4])).toEqual(['Add', 'BatchMatMulV2'])
  })
})
