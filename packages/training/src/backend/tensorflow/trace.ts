import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { Handle } from './binding-kernels.ts'
import type { Attribute, Eager, Observer, OutputInfo } from './eager.ts'
import { serializeGraph, type GraphNode, type Value } from './graph.ts'

/** A function of TensorFlow that was made from a part of a trace. */
export interface TracedFunction {
  readonly name: string
  /** The values of the trace that are its arguments, by `keyOf`. */
  readonly inputs: readonly string[]
  /** The values that it returns, likewise. */
  readonly outputs: readonly string[]
}

let defined = 0

/** The operations that a computation has run, from which functions can be made. */
export class Trace implements Observer {
  readonly #eager: Eager
  readonly #nodes: GraphNode[] = []
  readonly #values = new Map<Handle, Value>()
  /** Whether all operations so far depend only on arguments and constants. */
  isWhole = true

  constructor(eager: Eager) {
    this.#eager = eager
  }

  /** The number of nodes so far. */
  get length(): number {
    return this.#nodes.length
  }

  /** @param tensor - one that differs from call to call */
  addArgument(tensor: TensorInfo): void {
    const handle = this.#eager.handleOf(tensor)
    const dtype = this.#eager.typeOf(tensor.dtype)
    // the same tensor as two arguments: there is no telling which one an operation means
    if (dtype === undefined || this.#values.has(handle)) this.isWhole = false
    this.#values.set(handle, { node: this.#nodes.length, output: 0 })
    this.#nodes.push(this.#placeholder(dtype ?? 0))
  }

  /** Has the tensor mean an argument again, whose memory has been replaced since. */
  renew(key: string, tensor: TensorInfo): void {
    this.#values.set(this.#eager.handleOf(tensor), valueOf(key))
  }

  run<T>(compute: () => T): T {
    return this.#eager.observe(this, compute)
  }

  /** The trace is not whole if one of them is neither an argument nor the result of an operation. */
  keysOf(tensors: readonly Tensor[]): string[] {
    const handles = this.run(() => this.#eager.handlesOf(tensors))
    const values = handles.flatMap((handle) => this.#values.get(handle) ?? [])
    if (values.length < handles.length) this.isWhole = false
    return values.map(keyOf)
  }

  /** Whether it is the result of an operation among the nodes [from, to). */
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
    const values = inputs.map((handle) => this.#values.get(handle))
    const known = values.filter((value) => value !== undefined)
    if (known.length < values.length) this.isWhole = false
    const node = this.#nodes.length
    outputs.forEach(({ id }, output) => this.#values.set(id, { node, output }))
    this.#nodes.push({ op, attributes, inputs: known, dtypes: outputs.map(({ dtype }) => dtype) })
  }

  created(handle: Handle, shape: readonly number[], dtype: number, values: unknown): void {
    if (!ArrayBuffer.isView(values)) {
      this.isWhole = false
      return
    }
    const constant = { shape: [...shape], values: (values as Uint8Array).slice() }
    this.#values.set(handle, { node: this.#nodes.length, output: 0 })
    this.#nodes.push({ op: 'Const', attributes: [], inputs: [], dtypes: [dtype], constant })
  }

  broughtIn(): void {
    this.isWhole = false
  }

  /**
   * What the host computes from values is not in the trace. Of int32 values, TensorFlow.js only checks
   * that they are indices, as the modules themselves do.
   */
  read(handle: Handle): void {
    const value = this.#values.get(handle)
    const dtype = value && this.#nodes[value.node]!.dtypes[value.output]
    if (dtype !== this.#eager.typeOf('int32')) this.isWhole = false
  }

  /** @throws Error if an output does not depend on arguments and constants alone */
  defineAll(outputs: readonly Tensor[]): TracedFunction {
    const keys = this.keysOf(outputs)
    if (!this.isWhole) throw new Error('a value is from outside')
    return this.define(keys)
  }

  /**
   * Makes a function of the nodes on which the outputs depend.
   *
   * @param first - the values of nodes before this one are arguments, unless they are constants
   */
  define(outputs: readonly string[], first = 0): TracedFunction {
    const inputs: string[] = []
    const nodes: GraphNode[] = []
    const places = new Map<string, Value>()
    const isArgument = (node: number): boolean =>
      this.#nodes[node]!.op === 'Placeholder' || (node < first && this.#nodes[node]!.op !== 'Const')
    const wanted = this.#nodesBehind(outputs.map(valueOf), isArgument)
    for (const value of wanted.arguments) {
      const key = keyOf(value)
      places.set(key, { node: nodes.length, output: 0 })
      inputs.push(key)
      nodes.push(this.#placeholder(this.#nodes[value.node]!.dtypes[value.output]!))
    }
    for (const index of wanted.nodes) {
      const node = this.#nodes[index]!
      node.dtypes.forEach((_, output) => {
        places.set(keyOf({ node: index, output }), { node: nodes.length, output })
      })
      const renamed = node.inputs.map((value) => places.get(keyOf(value))!)
      nodes.push({ ...node, inputs: renamed })
    }
    const results = outputs.flatMap((key) => {
      const { node, output } = places.get(key)!
      if (nodes[node]!.op !== 'Placeholder') return [node, output]
      // a function cannot return its argument
      const dtype = nodes[node]!.dtypes[output]!
      const attributes = [this.#eager.typeAttribute('T', dtype)]
      nodes.push({ op: 'Identity', attributes, inputs: [{ node, output }], dtypes: [dtype] })
      return [nodes.length - 1, 0]
    })
    defined++
    const name = this.#eager.define(
      Int32Array.from(results),
      serializeGraph(nodes),
      inputs.length,
      defined,
    )
    return { name, inputs, outputs }
  }

  #placeholder(dtype: number): GraphNode {
    const attributes = [this.#eager.typeAttribute('dtype', dtype)]
    return { op: 'Placeholder', attributes, inputs: [], dtypes: [dtype] }
  }

  /** What the values depend on: arguments, and the indices of nodes, in the order of the trace. */
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

/** The key of an argument, by its place among the nodes. */
export const keyOfArgument = (place: number): string => keyOf({ node: place, output: 0 })

/** The inverse of `keyOfArgument`. */
export const placeOf = (key: string): number => valueOf(key).node

function keyOf({ node, output }: Value): string {
  return `${String(node)}:${String(output)}`
}

function valueOf(key: string): Value {
  const [node, output] = key.split(':').map(Number) as [number, number]
  return { node, output }
}
