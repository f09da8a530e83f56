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

/*
 * The part of the Protocol Buffers wire format that a GraphDef needs. Source:
 * tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape}.proto
 */

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
    field(1, text(`n${index}`)),
    field(2, text(op)),
    ...inputs.map(({ node, output }) => field(3, text(`n${node}:${output}`))),
    ...all,
  ])
}

function serializeTensor(dtype: number, { shape, values }: Constant): Bytes {
  const { buffer, byteOffset, byteLength } = values
  const content = new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength)
  return Buffer.concat([integer(1, dtype), field(2, shapeProto(shape)), field(4, content)])
}

function attribute(name: string, value: Bytes): Bytes {
  return field(5, Buffer.concat([field(1, text(name)), field(2, value)]))
}

/** Writers for the fields of AttrValue, indexed by TF_AttrType of TensorFlow's C API. */
const scalars: readonly ((value: never) => Bytes)[] = [
  (value: string) => field(2, text(value)),
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
  // The fields of ListValue have the same numbers as those of AttrValue for single values.
  return Array.isArray(value) ? field(1, Buffer.concat(value.map(scalar))) : scalar(value)
}

function shapeProto(shape: readonly number[]): Bytes {
  return Buffer.concat(shape.map((size) => field(2, integer(1, size))))
}

function integer(number: number, value: number): Bytes {
  return Buffer.concat([varint(number * 8), varint(value)])
}

function field(number: number, content: Bytes): Bytes {
  return Buffer.concat([varint(number * 8 + 2), varint(content.length), content])
}

function varint(value: number): Bytes {
  const bytes: number[] = []
  let rest = BigInt.asUintN(64, BigInt(value))
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128)
  return Uint8Array.of(...bytes, Number(rest))
}

function text(value: string): Bytes {
  return Buffer.from(value)
}
