import type { Attribute } from './eager.ts'

/** An output of a node. */
export interface Value {
  readonly node: number
  readonly output: number
}

export interface GraphNode {
  readonly op: string
  readonly attributes: readonly Attribute[]
  readonly inputs: readonly Value[]
  /** The dtypes of the outputs, as TensorFlow's numbers. */
  readonly dtypes: readonly number[]
  readonly shapes: readonly (readonly number[])[]
  /** Present only if the node is a constant. */
  readonly constant?: Constant
}

export interface Constant {
  readonly shape: readonly number[]
  readonly values: ArrayBufferView
}

// Source: tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape}.proto

type Bytes = Uint8Array

/** The GraphDef producer version. TensorFlow may withdraw operations from higher versions. */
const PRODUCER = 1000

/** Serializes a GraphDef whose nodes are named `n0`, `n1`, and so on. */
export function serializeGraph(nodes: readonly GraphNode[]): Bytes {
  const parts = nodes.map((node, i) => field(1, serializeNode(node, i)))
  return Buffer.concat([...parts, field(4, integer(1, PRODUCER))])
}

function serializeNode(
  { op, attributes, inputs, dtypes, constant }: GraphNode,
  index: number,
): Bytes {
  const all = attributes.map(({ name, type, value }) =>
    attribute(name, attributeValue(type, value)),
  )
  if (constant !== undefined) {
    all.push(attribute('dtype', integer(6, dtypes[0]!)))
    all.push(attribute('value', field(8, serializeTensor(dtypes[0]!, constant))))
  }
  return Buffer.concat([
    field(1, `n${index}`),
    field(2, op),
    ...inputs.map(({ node, output }) => field(3, `n${node}:${output}`)),
    ...all,
  ])
}

function serializeTensor(dtype: number, { shape, values }: Constant): Bytes {
  const { buffer, byteOffset, byteLength } = values
  const content = new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength)
  return Buffer.concat([integer(1, dtype), field(2, shapeProto(shape)), field(4, content)])
}

function attribute(name: string, value: Bytes): Bytes {
  return field(5, Buffer.concat([field(1, name), field(2, value)]))
}

/** Writers for the fields of AttrValue, indexed by TF_AttrType of TensorFlow's C API. */
const scalars: readonly ((value: never) => Bytes)[] = [
  (value: string) => field(2, value),
  (value: number) => integer(3, value),
  (value: number) =>
    Buffer.concat([varint(4 * 8 + 5), new Uint8Array(Float32Array.of(value).buffer)]),
  (value: boolean) => integer(5, value ? 1 : 0),
  (value: number) => integer(6, value),
]
const SHAPE = 5

function attributeValue(type: number, value: unknown): Bytes {
  if (type === SHAPE) return field(7, shapeProto(value as number[]))
  const scalar = scalars[type] as ((value: unknown) => Bytes) | undefined
  if (scalar === undefined) throw new Error(`attributes of type ${type} are not supported`)
  // ListValue numbers its fields like the fields of AttrValue for single values.
  return Array.isArray(value) ? field(1, Buffer.concat(value.map(scalar))) : scalar(value)
}

function shapeProto(shape: readonly number[]): Bytes {
  return Buffer.concat(shape.map((size) => field(2, integer(1, size))))
}

function integer(number: number, value: number): Bytes {
  return Buffer.concat([varint(number * 8), varint(value)])
}

function field(number: number, content: Bytes | string): Bytes {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes])
}

function varint(value: number): Bytes {
  const bytes: number[] = []
  let rest = BigInt.asUintN(64, BigInt(value))
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128)
  return Uint8Array.of(...bytes, Number(rest))
}

/** Values of TF_AttrType and TF_DataType in TensorFlow's C API. */
const [STRINGS, INT, FLOAT, INT32] = [0, 1, 1, 3]

/** The fused matrix product has other names for these attributes. */
const RENAMED: Readonly<Record<string, string>> = { adj_x: 'transpose_a', adj_y: 'transpose_b' }

/**
 * Replaces chains of operations by fused TensorFlow kernels on a GPU: a matrix product with its
 * bias and ReLU, and the gradient of a ReLU. On a GPU, launching most of these kernels takes longer
 * than running them. Unused nodes stay in the list; TensorFlow drops them.
 *
 * @param outputs - the results of the function
 */
export function fused(nodes: readonly GraphNode[], outputs: readonly Value[]): GraphNode[] {
  const result = [...nodes]
  const uses = nodes.map(() => 0)
  for (const { node } of [...nodes.flatMap(({ inputs }) => inputs), ...outputs]) uses[node]!++

  /** The node that computes this value, if it is one of `ops` and no other node uses the value. */
  const only = (value: Value | undefined, ...ops: readonly string[]): GraphNode | undefined => {
    const node = value && nodes[value.node]!
    return node !== undefined && ops.includes(node.op) && uses[value!.node] === 1 ? node : undefined
  }
  const shapeOf = ({ node, output }: Value): readonly number[] => nodes[node]!.shapes[output]!
  const reshaped = (value: Value, shape: readonly number[], T: Attribute): GraphNode => {
    const values = Int32Array.from(shape)
    const constant = { shape: [shape.length], values }
    const at = result.push({
      op: 'Const',
      attributes: [],
      inputs: [],
      dtypes: [INT32],
      shapes: [constant.shape],
      constant,
    })
    const inputs = [value, { node: at - 1, output: 0 }]
    return { op: 'Reshape', attributes: [T], inputs, dtypes: [T.value as number], shapes: [shape] }
  }
  /** Removes the leading axis of a batch of one matrix. */
  const matrix = (value: Value, T: Attribute): Value => {
    const shape = shapeOf(value)
    if (shape.length === 2) return value
    return { node: result.push(reshaped(value, shape.slice(-2), T)) - 1, output: 0 }
  }

  /** Matches dy relu(sign(y)), the form in which TensorFlow.js computes the gradient of y = relu(x). */
  const reluGradient = (node: GraphNode): GraphNode | undefined => {
    const [dy, slope] = node.inputs as [Value, Value]
    const step = only(only(slope, 'Cast')?.inputs[0] ?? slope, 'Relu')
    const y = only(step?.inputs[0], 'Sign')?.inputs[0]
    if (y === undefined || shapeOf(dy).join() !== shapeOf(y).join()) return undefined
    return { ...node, op: 'ReluGrad', inputs: [dy, y] }
  }
  /** Fuses relu(x W + b), or x W + b. */
  const linear = (sum: GraphNode, last: GraphNode): GraphNode | undefined => {
    const [a, b] = sum.inputs as [Value, Value]
    const product = only(a, 'BatchMatMulV2') ?? only(b, 'BatchMatMulV2')
    if (product === undefined) return undefined
    const bias = product === nodes[a.node] ? b : a
    const shape = product.shapes[0]!
    if (shape.length > 3 || (shape.length === 3 && shape[0] !== 1)) return undefined
    if (product.inputs.some((value) => shapeOf(value).length !== shape.length)) return undefined
    if (shapeOf(bias).join() !== String(shape.at(-1))) return undefined
    const T = product.attributes.find(({ name }) => name === 'T')!
    const kinds = last === sum ? ['BiasAdd'] : ['BiasAdd', 'Relu']
    const node: GraphNode = {
      op: '_FusedMatMul',
      attributes: [
        ...product.attributes.map((each) => ({ ...each, name: RENAMED[each.name] ?? each.name })),
        { name: 'num_args', type: INT, value: 1 },
        { name: 'fused_ops', type: STRINGS, value: kinds },
      ],
      inputs: [...product.inputs.map((value) => matrix(value, T)), bias],
      dtypes: product.dtypes,
      shapes: [shape.slice(-2)],
    }
    if (shape.length === 2) return node
    return reshaped({ node: result.push(node) - 1, output: 0 }, shape, T)
  }

  const sums = ['Add', 'AddV2', 'BiasAdd']
  const covered = new Set<GraphNode>()
  for (const [index, node] of [...nodes.entries()].reverse()) {
    const sum = node.op === 'Relu' ? only(node.inputs[0], ...sums) : node
    const isOpen = sum !== undefined && sums.includes(sum.op) && !covered.has(sum)
    const found = node.op === 'Mul' ? reluGradient(node) : isOpen ? linear(sum, node) : undefined
    if (found === undefined) continue
    result[index] = found
    if (sum !== undefined) covered.add(sum)
  }
  return result
}

/**
 * Replaces products of a single row by an operation that TensorFlow does not pass to oneDNN. A call of
 * oneDNN takes longer than the product of a small matrix. The two operations may round sums differently.
 */
export function withoutOneDnn(nodes: readonly GraphNode[]): GraphNode[] {
  return nodes.map((node) => {
    const { op, attributes, inputs, dtypes } = node
    const [left] = inputs
    const isRow =
      op === 'BatchMatMulV2' &&
      dtypes[0] === FLOAT &&
      nodes[left!.node]!.shapes[left!.output]!.at(-2) === 1 &&
      attributes.some(({ name, value }) => name === 'adj_x' && value === false)
    if (!isRow) return node
    const types = ['Ta', 'Tb', 'Tout']
    const renamed = attributes.flatMap((each) =>
      each.name === 'T' ? types.map((name) => ({ ...each, name })) : each,
    )
    return { ...node, op: 'BatchMatMulV3', attributes: renamed }
  })
}
