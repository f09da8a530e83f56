import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { Handle } from './binding-kernels.ts'
import type { Eager, Observer } from './eager.ts'
import { fused, serializeGraph, withoutOneDnn, type GraphNode, type Value } from './graph.ts'

/** A TensorFlow function made from a part of a trace. */
export interface TracedFunction {
  /** The number of the function in the binding. */
  readonly definition: number
  /** The traced values that are arguments of the function, by `keyOf`. */
  readonly inputs: readonly string[]
  /** The keys of the values that the function returns. */
  readonly outputs: readonly string[]
  readonly shapes: readonly (readonly number[])[]
}

let defined = 0

/** Records the operations of a computation, to make TensorFlow functions from them. */
export type Trace = ReturnType<typeof createTrace>

export function createTrace(eager: Eager) {
  const nodes: GraphNode[] = []
  const values = new Map<Handle, Value>()
  /** The outputs of ReLU operations, by the keys of their inputs. */
  const rectified = new Map<string, Value>()
  let isWhole = true

  const leave = () => {
    isWhole = false
  }
  const valuesOf = (handles: readonly Handle[]) => {
    const known = handles.flatMap((handle) => values.get(handle) ?? [])
    if (known.length < handles.length) leave()
    return known
  }
  /**
   * TensorFlow.js computes the slope of y = relu(x) as relu(sign(x)). This function replaces sign(x)
   * by sign(y), which gives the same slope, so the forward pass need not keep x.
   */
  const useOutputOfRelu = (inputs: Value[]) => {
    const [value] = inputs
    const sign = value && nodes[value.node]!
    const y = sign?.op === 'Sign' ? rectified.get(keyOf(sign.inputs[0]!)) : undefined
    if (y !== undefined) inputs[0] = { node: nodes.push({ ...sign!, inputs: [y] }) - 1, output: 0 }
  }
  const observer: Observer = {
    executed(op, attributes, inputs, outputs) {
      const known = valuesOf(inputs)
      const isRelu = op === 'Relu' && !eager.isOnHost
      if (isRelu) useOutputOfRelu(known)
      const node = nodes.length
      outputs.forEach(({ id }, output) => values.set(id, { node, output }))
      for (const value of isRelu ? known : []) rectified.set(keyOf(value), { node, output: 0 })
      const dtypes = outputs.map(({ dtype }) => dtype)
      const shapes = outputs.map(({ shape }) => [...shape])
      nodes.push({ op, attributes, inputs: known, dtypes, shapes })
    },
    created(handle, shape, dtype, content) {
      if (!ArrayBuffer.isView(content)) {
        leave()
        return
      }
      const constant = { shape: [...shape], values: (content as Uint8Array).slice() }
      values.set(handle, { node: nodes.length, output: 0 })
      const shapes = [constant.shape]
      nodes.push({ op: 'Const', attributes: [], inputs: [], dtypes: [dtype], shapes, constant })
    },
    broughtIn: leave,
    /**
     * The trace cannot contain computations of JavaScript on values that it reads. TensorFlow.js and our
     * modules read int32 values only to check that they are valid indices.
     */
    read(handle) {
      const value = values.get(handle)
      const dtype = value && nodes[value.node]!.dtypes[value.output]
      if (dtype !== eager.int32) leave()
    },
  }
  const run = <T>(compute: () => T) => eager.observe(observer, compute)

  /** Makes `define` throw if a tensor is neither an argument nor a traced result. */
  const keysOf = (tensors: readonly Tensor[]) =>
    valuesOf(run(() => tensors.map(eager.handleOf))).map(keyOf)

  /** Returns the arguments and nodes that the values depend on. */
  const nodesBehind = (from: readonly Value[], isArgument: (node: number) => boolean) => {
    const found = new Map<string, Value>()
    const needed = new Set<number>()
    const open = [...from]
    for (let value = open.pop(); value !== undefined; value = open.pop()) {
      if (isArgument(value.node)) {
        found.set(keyOf(value), value)
      } else if (!needed.has(value.node)) {
        needed.add(value.node)
        open.push(...nodes[value.node]!.inputs)
      }
    }
    return { args: [...found.values()], needed: [...needed].sort((a, b) => a - b) }
  }

  /**
   * Makes a TensorFlow function from the nodes that the outputs depend on.
   *
   * @param first - values of nodes before this one become arguments, except constants
   * @param rewrite - replaces operations on the CPU
   * @throws Error if an operation so far depends on anything but arguments and constants
   */
  const define = (
    outputs: readonly string[],
    first = 0,
    rewrite?: (nodes: readonly GraphNode[]) => GraphNode[],
  ): TracedFunction => {
    if (!isWhole) throw new Error('a value is from outside')
    const isArgument = (node: number) =>
      nodes[node]!.op === 'Placeholder' || (node < first && nodes[node]!.op !== 'Const')
    const { args, needed } = nodesBehind(outputs.map(valueOf), isArgument)
    const assembly = createAssembly(eager)
    for (const value of args) {
      const { dtypes, shapes } = nodes[value.node]!
      assembly.addArgument(keyOf(value), dtypes[value.output]!, shapes[value.output]!)
    }
    for (const index of needed) assembly.add(index, nodes[index]!)
    const results = outputs.map((key) => assembly.result(key))
    const inputs = args.map(keyOf)
    defined++
    const onHost = rewrite?.(assembly.nodes) ?? assembly.nodes
    const definition = eager.define(
      Int32Array.from(results.flatMap(({ node, output }) => [node, output])),
      serializeGraph(eager.isOnHost ? onHost : fused(assembly.nodes, results)),
      inputs.length,
      defined,
    )
    const shapes = results.map(({ node, output }) => assembly.nodes[node]!.shapes[output]!)
    return { definition, inputs, outputs, shapes }
  }

  return {
    run,
    keysOf,
    define,

    get length() {
      return nodes.length
    },

    /** @param tensor - a tensor that differs from call to call */
    addArgument(tensor: TensorInfo) {
      const handle = eager.handleOf(tensor)
      const dtype = eager.typeOf(tensor.dtype)
      // If two arguments are the same tensor, the trace cannot tell which of them an operation uses.
      if (dtype === undefined || values.has(handle)) leave()
      values.set(handle, { node: nodes.length, output: 0 })
      nodes.push(placeholder(eager, dtype ?? 0, tensor.shape))
    },

    /** Maps a tensor to its argument again, after the memory of the tensor was replaced. */
    renew(key: string, tensor: TensorInfo) {
      values.set(eager.handleOf(tensor), valueOf(key))
    },

    /** Whether one of the nodes [from, to) computes the value. */
    isMade(key: string, from: number, to: number) {
      const { node } = valueOf(key)
      const { op } = nodes[node]!
      return node >= from && node < to && op !== 'Placeholder' && op !== 'Const'
    },

    /**
     * Makes a function of a computation outside of training. Its results may be rounded differently from
     * those of single operations.
     */
    defineAll(outputs: readonly Tensor[]) {
      return define(keysOf(outputs), 0, withoutOneDnn)
    },
  }
}

/**
 * Builds the nodes of a function. In functions on a GPU, TensorFlow keeps int32 arguments,
 * constants and reshaped values in host memory, and copies them back and forth. Therefore they stay
 * float32 values of the same bits until an operation uses them.
 */
function createAssembly(eager: Eager) {
  const { float, int32 } = eager
  const nodes: GraphNode[] = []
  /** The node for each value of the trace, by key. */
  const places = new Map<string, Value>()
  /** The node for each int32 value in the form of float32 bits, by key. */
  const bits = new Map<string, Value>()

  const push = (node: GraphNode): Value => ({ node: nodes.push(node) - 1, output: 0 })
  const isMoved = (dtype: number | undefined) => !eager.isOnHost && dtype === int32
  const bitcast = (value: Value, dtype: number) => {
    const { dtypes, shapes } = nodes[value.node]!
    const attributes = [
      eager.typeAttribute('T', dtypes[value.output]!),
      eager.typeAttribute('type', dtype),
    ]
    const node = { op: 'Bitcast', attributes, inputs: [value], dtypes: [dtype] }
    return push({ ...node, shapes: [shapes[value.output]!] })
  }
  const intsOf = (value: Value) => {
    const key = keyOf(value)
    const place = places.get(key) ?? bitcast(bits.get(key)!, int32)
    places.set(key, place)
    return place
  }

  return {
    nodes,

    addArgument(key: string, dtype: number, shape: readonly number[]) {
      const isBits = isMoved(dtype)
      const node = placeholder(eager, isBits ? float : dtype, shape)
      ;(isBits ? bits : places).set(key, push(node))
    },

    /** @param index - the index of the node in the trace */
    add(index: number, node: GraphNode) {
      const { op, dtypes, shapes, inputs } = node
      const key = keyOf({ node: index, output: 0 })
      const data = op === 'Reshape' && isMoved(dtypes[0]) && bits.get(keyOf(inputs[0]!))
      if (data) {
        const attributes = [eager.typeAttribute('T', float)]
        const reshaped = { op, attributes, inputs: [data, intsOf(inputs[1]!)] }
        bits.set(key, push({ ...reshaped, dtypes: [float], shapes }))
        return
      }
      const own = push({ ...node, inputs: inputs.map(intsOf) })
      for (const output of dtypes.keys()) {
        places.set(keyOf({ node: index, output }), { node: own.node, output })
      }
      if (op === 'Const' && isMoved(dtypes[0])) bits.set(key, push({ ...node, dtypes: [float] }))
    },

    /** Returns the output of the function for a value. An int32 value becomes float32 of the same bits. */
    result(key: string) {
      const value = bits.get(key) ?? places.get(key)!
      const { op, dtypes, shapes } = nodes[value.node]!
      const dtype = dtypes[value.output]!
      if (isMoved(dtype)) return bitcast(value, float)
      if (op !== 'Placeholder') return value
      // A TensorFlow function cannot return an argument directly.
      const attributes = [eager.typeAttribute('T', dtype)]
      return push({ op: 'Identity', attributes, inputs: [value], dtypes: [dtype], shapes })
    },
  }
}

function placeholder(eager: Eager, dtype: number, shape: readonly number[]): GraphNode {
  const attributes = [eager.typeAttribute('dtype', dtype)]
  return { op: 'Placeholder', attributes, inputs: [], dtypes: [dtype], shapes: [shape] }
}

/** Returns the key of an argument with this node index. */
export const keyOfArgument = (place: number): string => keyOf({ node: place, output: 0 })

/** The inverse of `keyOfArgument`. */
export const placeOf = (key: string): number => valueOf(key).node

function keyOf({ node, output }: Value): string {
  return `${node}:${output}`
}

function valueOf(key: string): Value {
  const [node, output] = key.split(':').map(Number) as [number, number]
  return { node, output }
}
