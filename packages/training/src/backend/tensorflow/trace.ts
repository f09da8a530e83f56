import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { Handle } from './binding-kernels.ts'
import type { Attribute, Eager, Observer, OutputInfo } from './eager.ts'
import { fused } from './fused.ts'
import { serializeGraph, type GraphNode, type Value } from './graph.ts'

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
export class Trace implements Observer {
  readonly #eager: Eager
  readonly #nodes: GraphNode[] = []
  readonly #values = new Map<Handle, Value>()
  /** The outputs of ReLU operations, by the keys of their inputs. */
  readonly #rectified = new Map<string, Value>()
  /** Whether all operations so far depend only on arguments and constants. */
  isWhole = true

  constructor(eager: Eager) {
    this.#eager = eager
  }

  get length(): number {
    return this.#nodes.length
  }

  /** @param tensor - a tensor that differs from call to call */
  addArgument(tensor: TensorInfo): void {
    const handle = this.#eager.handleOf(tensor)
    const dtype = this.#eager.typeOf(tensor.dtype)
    // If two arguments are the same tensor, the trace cannot tell which of them an operation uses.
    if (dtype === undefined || this.#values.has(handle)) this.isWhole = false
    this.#values.set(handle, { node: this.#nodes.length, output: 0 })
    this.#nodes.push(placeholder(this.#eager, dtype ?? 0, tensor.shape))
  }

  /** Maps a tensor to its argument again, after the memory of the tensor was replaced. */
  renew(key: string, tensor: TensorInfo): void {
    this.#values.set(this.#eager.handleOf(tensor), valueOf(key))
  }

  run<T>(compute: () => T): T {
    return this.#eager.observe(this, compute)
  }

  /**
   * Returns the keys of tensors. A tensor that is neither an argument nor a traced result makes the
   * trace incomplete (`isWhole`).
   */
  keysOf(tensors: readonly Tensor[]): string[] {
    const handles = this.run(() => this.#eager.handlesOf(tensors))
    const values = handles.flatMap((handle) => this.#values.get(handle) ?? [])
    if (values.length < handles.length) this.isWhole = false
    return values.map(keyOf)
  }

  /** Whether one of the nodes [from, to) computes the value. */
  isMade(key: string, from: number, to: number): boolean {
    const { node } = valueOf(key)
    const { op } = this.#nodes[node]!
    return node >= from && node < to && op !== 'Placeholder' && op !== 'Const'
  }

  executed(
    op: string,
    attributes: readonly Attribute[],
    inputs: readonly Handle[],
    outputs: readonly OutputInfo[],
  ): void {
    const known = inputs.flatMap((handle) => this.#values.get(handle) ?? [])
    if (known.length < inputs.length) this.isWhole = false
    if (op === 'Relu' && !this.#eager.isOnHost) this.#useOutputOfRelu(known)
    const node = this.#nodes.length
    outputs.forEach(({ id }, output) => this.#values.set(id, { node, output }))
    if (op === 'Relu' && !this.#eager.isOnHost) {
      for (const value of known) this.#rectified.set(keyOf(value), { node, output: 0 })
    }
    const dtypes = outputs.map(({ dtype }) => dtype)
    const shapes = outputs.map(({ shape }) => [...shape])
    this.#nodes.push({ op, attributes, inputs: known, dtypes, shapes })
  }

  /**
   * TensorFlow.js computes the slope of y = relu(x) as relu(sign(x)). This method replaces sign(x)
   * by sign(y), which gives the same slope, so the forward pass need not keep x.
   */
  #useOutputOfRelu(inputs: Value[]): void {
    const [value] = inputs
    const sign = value && this.#nodes[value.node]!
    const y = sign?.op === 'Sign' ? this.#rectified.get(keyOf(sign.inputs[0]!)) : undefined
    if (y !== undefined) {
      inputs[0] = { node: this.#nodes.push({ ...sign!, inputs: [y] }) - 1, output: 0 }
    }
  }

  created(handle: Handle, shape: readonly number[], dtype: number, values: unknown): void {
    if (!ArrayBuffer.isView(values)) {
      this.isWhole = false
      return
    }
    const constant = { shape: [...shape], values: (values as Uint8Array).slice() }
    this.#values.set(handle, { node: this.#nodes.length, output: 0 })
    const shapes = [constant.shape]
    this.#nodes.push({ op: 'Const', attributes: [], inputs: [], dtypes: [dtype], shapes, constant })
  }

  broughtIn(): void {
    this.isWhole = false
  }

  /**
   * The trace lacks what JavaScript computes from values that it reads. TensorFlow.js and our
   * modules read int32 values only to check that they are valid indices.
   */
  read(handle: Handle): void {
    const value = this.#values.get(handle)
    const dtype = value && this.#nodes[value.node]!.dtypes[value.output]
    if (dtype !== this.#eager.typeOf('int32')) this.isWhole = false
  }

  /** @throws Error if an output depends on anything but arguments and constants */
  defineAll(outputs: readonly Tensor[]): TracedFunction {
    const keys = this.keysOf(outputs)
    if (!this.isWhole) throw new Error('a value is from outside')
    return this.define(keys)
  }

  /**
   * Makes a TensorFlow function from the nodes that the outputs depend on.
   *
   * @param first - values of nodes before this one become arguments, except constants
   */
  define(outputs: readonly string[], first = 0): TracedFunction {
    const isArgument = (node: number): boolean =>
      this.#nodes[node]!.op === 'Placeholder' || (node < first && this.#nodes[node]!.op !== 'Const')
    const wanted = this.#nodesBehind(outputs.map(valueOf), isArgument)
    const assembly = new Assembly(this.#eager)
    for (const value of wanted.arguments) {
      const { dtypes, shapes } = this.#nodes[value.node]!
      assembly.addArgument(keyOf(value), dtypes[value.output]!, shapes[value.output]!)
    }
    for (const index of wanted.nodes) assembly.add(index, this.#nodes[index]!)
    const results = outputs.map((key) => assembly.result(key))
    const { nodes } = assembly
    const inputs = wanted.arguments.map(keyOf)
    defined++
    const definition = this.#eager.define(
      Int32Array.from(results.flatMap(({ node, output }) => [node, output])),
      serializeGraph(this.#eager.isOnHost ? nodes : fused(nodes, results)),
      inputs.length,
      defined,
    )
    const shapes = results.map(({ node, output }) => nodes[node]!.shapes[output]!)
    return { definition, inputs, outputs, shapes }
  }

  /** Returns the arguments and node indices that the values depend on, in the order of the trace. */
  #nodesBehind(
    values: readonly Value[],
    isArgument: (node: number) => boolean,
  ): { arguments: Value[]; nodes: number[] } {
    const found = new Map<string, Value>()
    const nodes = new Set<number>()
    const open = [...values]
    for (let value = open.pop(); value !== undefined; value = open.pop()) {
      if (isArgument(value.node)) {
        found.set(keyOf(value), value)
      } else if (!nodes.has(value.node)) {
        nodes.add(value.node)
        open.push(...this.#nodes[value.node]!.inputs)
      }
    }
    return { arguments: [...found.values()], nodes: [...nodes].sort((a, b) => a - b) }
  }
}

/**
 * Builds the nodes of a function. In functions on a GPU, TensorFlow keeps int32 arguments,
 * constants and reshaped values in host memory, and copies them back and forth. Therefore they stay
 * float32 values of the same bits until an operation uses them.
 */
class Assembly {
  readonly nodes: GraphNode[] = []
  readonly #eager: Eager
  /** The node for each value of the trace, by key. */
  readonly #places = new Map<string, Value>()
  /** The node for each int32 value in the form of float32 bits, by key. */
  readonly #bits = new Map<string, Value>()

  constructor(eager: Eager) {
    this.#eager = eager
  }

  addArgument(key: string, dtype: number, shape: readonly number[]): void {
    const isBits = this.#isMoved(dtype)
    const node = placeholder(this.#eager, isBits ? this.#eager.float : dtype, shape)
    ;(isBits ? this.#bits : this.#places).set(key, this.#push(node))
  }

  /** @param index - the index of the node in the trace */
  add(index: number, node: GraphNode): void {
    const { op, dtypes, shapes, inputs } = node
    const [data] = inputs
    const bits = op === 'Reshape' && this.#isMoved(dtypes[0]!) && this.#bits.get(keyOf(data!))
    if (bits) {
      const attributes = [this.#eager.typeAttribute('T', this.#eager.float)]
      const shape = this.#intsOf(keyOf(inputs[1]!))
      const reshaped = {
        op,
        attributes,
        inputs: [bits, shape],
        dtypes: [this.#eager.float],
        shapes,
      }
      this.#bits.set(keyOf({ node: index, output: 0 }), this.#push(reshaped))
      return
    }
    const own = this.#push({ ...node, inputs: inputs.map((value) => this.#intsOf(keyOf(value))) })
    for (const output of dtypes.keys()) {
      this.#places.set(keyOf({ node: index, output }), { node: own.node, output })
    }
    if (op !== 'Const' || !this.#isMoved(dtypes[0]!)) return
    const same = this.#push({ ...node, dtypes: [this.#eager.float] })
    this.#bits.set(keyOf({ node: index, output: 0 }), same)
  }

  /** Returns the output of the function for a value. An int32 value becomes float32 of the same bits. */
  result(key: string): Value {
    const value = this.#bits.get(key) ?? this.#places.get(key)!
    const { op, dtypes, shapes } = this.nodes[value.node]!
    const dtype = dtypes[value.output]!
    if (this.#isMoved(dtype)) return this.#bitcast(value, this.#eager.float)
    if (op !== 'Placeholder') return value
    // A TensorFlow function cannot return an argument directly.
    const attributes = [this.#eager.typeAttribute('T', dtype)]
    return this.#push({ op: 'Identity', attributes, inputs: [value], dtypes: [dtype], shapes })
  }

  #intsOf(key: string): Value {
    const place = this.#places.get(key) ?? this.#bitcast(this.#bits.get(key)!, this.#eager.int32)
    this.#places.set(key, place)
    return place
  }

  #bitcast(value: Value, dtype: number): Value {
    const { dtypes, shapes } = this.nodes[value.node]!
    const attributes = [
      this.#eager.typeAttribute('T', dtypes[value.output]!),
      this.#eager.typeAttribute('type', dtype),
    ]
    const node = { op: 'Bitcast', attributes, inputs: [value], dtypes: [dtype] }
    return this.#push({ ...node, shapes: [shapes[value.output]!] })
  }

  #isMoved(dtype: number): boolean {
    return !this.#eager.isOnHost && dtype === this.#eager.int32
  }

  #push(node: GraphNode): Value {
    return { node: this.nodes.push(node) - 1, output: 0 }
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
