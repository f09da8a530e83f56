import type { Eager } from '../backend/eager.ts'
import type { FunctionNode } from '../backend/function-def.ts'
import type { Linear } from './linear.ts'

/** Names of functions of TensorFlow for the passes of layers with these activations. */
export interface LinearFunctions {
  /** x, weights, biases -> the output of each layer. */
  readonly forward: string
  /** x, dy, weights, outputs -> gradients of the weights, of the biases, of x if that is needed. */
  readonly backward: string
  /** As `backward`, and sums for the weights and for the biases -> sums with their gradients, as it. */
  readonly backwardSum: string
  /** As `backward` -> gradients before each activation, the gradient of x if that is needed. */
  readonly backwardInput: string
  /** x, gradients before each activation, outputs -> gradients of the weights, of the biases. */
  readonly backwardParameters: string
}

const known = new WeakMap<Eager, Map<string, LinearFunctions>>()

/** The functions for these layers, of any sizes; TensorFlow is given them once. */
export function linearFunctions(
  eager: Eager,
  layers: readonly Linear[],
  needsInputGradient: boolean,
): LinearFunctions {
  const ofEager = known.get(eager) ?? new Map<string, LinearFunctions>()
  known.set(eager, ofEager)
  const activations = layers.map(({ activation }) => activation)
  const key = `${activations.map(([letter]) => letter).join('')}_${needsInputGradient ? 'dx' : 'x'}`
  const functions = ofEager.get(key) ?? define(eager, activations, key, needsInputGradient)
  ofEager.set(key, functions)
  return functions
}

function define(
  eager: Eager,
  activations: readonly Linear['activation'][],
  key: string,
  needsInputGradient: boolean,
): LinearFunctions {
  const each = (name: string): string[] => activations.map((_, i) => `${name}${i}`)
  const toInputs = walk(activations, needsInputGradient)
  const dx = toInputs.dx === undefined ? {} : { dx: toInputs.dx }
  const gradients = parameterGradients(toInputs.dz)
  const give = (
    what: string,
    inputs: readonly string[],
    outputs: Readonly<Record<string, string>>,
    nodes: readonly FunctionNode[],
  ): string => {
    const name = `tsrun_${what}_${key}`
    eager.define({ name, inputs, outputs, nodes })
    return name
  }
  const forward = forwardOf(activations)
  const inputs = ['x', 'dy', ...each('w'), ...each('y')]
  const saved = parameterGradients(each('dz'))
  const sums = addTo(gradients.outputs)
  return {
    forward: give(
      'forward',
      ['x', ...each('w'), ...each('b')],
      named('o', forward.outputs),
      forward.nodes,
    ),
    backward: give('backward', inputs, { ...gradients.outputs, ...dx }, [
      ...toInputs.nodes,
      ...gradients.nodes,
    ]),
    backwardSum: give(
      'sum',
      [...inputs, ...Object.keys(gradients.outputs).map((name) => `sum_${name}`)],
      { ...sums.outputs, ...dx },
      [...toInputs.nodes, ...gradients.nodes, ...sums.nodes],
    ),
    backwardInput: give('inputs', inputs, { ...named('o', toInputs.dz), ...dx }, toInputs.nodes),
    backwardParameters: give(
      'parameters',
      ['x', ...each('dz'), ...each('y')],
      saved.outputs,
      saved.nodes,
    ),
  }
}

function forwardOf(activations: readonly Linear['activation'][]): {
  readonly nodes: FunctionNode[]
  readonly outputs: string[]
} {
  const nodes: FunctionNode[] = []
  const outputs: string[] = []
  activations.forEach((activation, i) => {
    nodes.push(product(`product${i}`, outputs[i - 1] ?? 'x', `w${i}`), {
      name: `sum${i}`,
      operation: 'BiasAdd',
      inputs: [`product${i}:product:0`, `b${i}`],
    })
    const sum = `sum${i}:output:0`
    if (activation === 'relu') nodes.push({ name: `relu${i}`, operation: 'Relu', inputs: [sum] })
    outputs.push(activation === 'relu' ? `relu${i}:activations:0` : sum)
  })
  return { nodes, outputs }
}

/** Gradients before each activation, from the last layer to the first. */
function walk(
  activations: readonly Linear['activation'][],
  needsInputGradient: boolean,
): { readonly nodes: FunctionNode[]; readonly dz: string[]; readonly dx: string | undefined } {
  const nodes: FunctionNode[] = []
  const dz: string[] = []
  let gradient: string | undefined = 'dy'
  for (let i = activations.length - 1; i >= 0; i--) {
    dz[i] = gradient!
    if (activations[i] === 'relu') {
      nodes.push({ name: `mask${i}`, operation: 'ReluGrad', inputs: [gradient, `y${i}`] })
      dz[i] = `mask${i}:backprops:0`
    }
    gradient = undefined
    if (i === 0 && !needsInputGradient) break
    nodes.push(product(`dx${i}`, dz[i]!, `w${i}`, { transpose_b: true }))
    gradient = `dx${i}:product:0`
  }
  return { nodes, dz, dx: gradient }
}

/** @param dz - the gradient before each activation */
function parameterGradients(dz: readonly string[]) {
  const nodes = dz.flatMap((gradient, i): FunctionNode[] => [
    product(`dw${i}`, i === 0 ? 'x' : `y${i - 1}`, gradient, { transpose_a: true }),
    { name: `db${i}`, operation: 'BiasAddGrad', inputs: [gradient] },
  ])
  const outputs = {
    ...named(
      'ow',
      dz.map((_, i) => `dw${i}:product:0`),
    ),
    ...named(
      'ob',
      dz.map((_, i) => `db${i}:output:0`),
    ),
  }
  return { nodes, outputs }
}

/** Each of these plus the input `sum_<its name>`. */
function addTo(results: Readonly<Record<string, string>>) {
  const nodes = Object.entries(results).map(([name, source]): FunctionNode => {
    return { name: `add_${name}`, operation: 'AddV2', inputs: [`sum_${name}`, source] }
  })
  const outputs = Object.fromEntries(Object.keys(results).map((name) => [name, `add_${name}:z:0`]))
  return { nodes, outputs }
}

function product(
  name: string,
  a: string,
  b: string,
  transposed: { readonly transpose_a?: boolean; readonly transpose_b?: boolean } = {},
): FunctionNode {
  const flags = { transpose_a: false, transpose_b: false, ...transposed }
  return { name, operation: 'MatMul', inputs: [a, b], flags }
}

function named(name: string, sources: readonly string[]): Record<string, string> {
  return Object.fromEntries(sources.map((source, i) => [`${name}${i}`, source]))
}
