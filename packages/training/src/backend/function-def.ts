/** An operation in a function. All its tensors are float32. */
export interface FunctionNode {
  readonly name: string
  readonly operation: string
  /** Names of the function's inputs, or `<node>:<output>:0`, as the operation calls its output. */
  readonly inputs: readonly string[]
  readonly flags?: Readonly<Record<string, boolean>>
}

/** A function of operations, which TensorFlow runs in one call. */
export interface FunctionDefinition {
  /** Must be new in this process: letters, digits and `_`. */
  readonly name: string
  readonly inputs: readonly string[]
  /** Name of each output and where it comes from, as in `FunctionNode.inputs`. */
  readonly outputs: Readonly<Record<string, string>>
  readonly nodes: readonly FunctionNode[]
}

const FLOAT = 1

/**
 * A FunctionDef of TensorFlow as a protocol buffer.
 *
 * Source: tensorflow/core/framework/function.proto, op_def.proto, node_def.proto, attr_value.proto.
 */
export function encodeFunction({ name, inputs, outputs, nodes }: FunctionDefinition): Uint8Array {
  const argument = (each: string): number[] => [...text(1, each), ...number(3, FLOAT)]
  const signature = [
    ...text(1, name),
    ...inputs.flatMap((each) => bytes(2, argument(each))),
    ...Object.keys(outputs).flatMap((each) => bytes(3, argument(each))),
  ]
  const results = Object.entries(outputs).map((each) => entry(4, each[0], text(2, each[1])))
  return Uint8Array.from([
    ...bytes(1, signature),
    ...nodes.flatMap((node) => bytes(3, encodeNode(node))),
    ...results.flat(),
  ])
}

function encodeNode({ name, operation, inputs, flags = {} }: FunctionNode): number[] {
  return [
    ...text(1, name),
    ...text(2, operation),
    ...inputs.flatMap((each) => text(3, each)),
    ...entry(5, 'T', bytes(2, number(6, FLOAT))),
    ...Object.entries(flags).flatMap(([key, flag]) =>
      entry(5, key, bytes(2, number(5, Number(flag)))),
    ),
  ]
}

/** An entry of a map; `value` is its field 2. */
function entry(field: number, key: string, value: readonly number[]): number[] {
  return bytes(field, [...text(1, key), ...value])
}

function text(field: number, value: string): number[] {
  return bytes(field, [...new TextEncoder().encode(value)])
}

function bytes(field: number, value: readonly number[]): number[] {
  return [...varint((field << 3) | 2), ...varint(value.length), ...value]
}

function number(field: number, value: number): number[] {
  return [...varint(field << 3), ...varint(value)]
}

function varint(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(value >>> 7)]
}
