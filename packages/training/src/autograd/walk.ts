import { tsrError } from '@tsrun/core'
import type { Parameter } from '../model/parameter.ts'
import type { GradientListener } from '../model/recording.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { ownedResults, type TapeNode } from './tape.ts'

export interface BackwardPass {
  readonly value: Tensor
  readonly dy: Tensor
  readonly x: Tensor
  /** The parameters whose gradients are requested, by tensor id. */
  readonly wanted: ReadonlyMap<number, Parameter>
  readonly needsInputGradient: boolean
  readonly onGradient: GradientListener
}

/** An operation on the tape, with the names of those inputs that need a gradient. */
export interface DependentNode extends TapeNode {
  readonly targets: readonly string[]
}

/**
 * Splits the tape into the nodes on paths from `sources` (tensor ids) to `y`, in order, and all other
 * nodes (`rest`).
 */
export function dependentNodes(
  tape: readonly TapeNode[],
  sources: ReadonlySet<number>,
  y: Tensor,
): { nodes: DependentNode[]; rest: TapeNode[] } {
  const fromSources = new Set(sources)
  const targets = tape.map((node) => {
    const found = Object.keys(node.inputs).filter((key) => fromSources.has(node.inputs[key]!.id))
    if (found.length > 0) for (const output of node.outputs) fromSources.add(output.id)
    return found
  })
  const toValue = new Set([y.id])
  const nodes: DependentNode[] = []
  const rest: TapeNode[] = []
  for (let i = tape.length - 1; i >= 0; i--) {
    const node = tape[i]!
    if (targets[i]!.length === 0 || !node.outputs.some((output) => toValue.has(output.id))) {
      rest.push(node)
      continue
    }
    for (const input of Object.values(node.inputs)) toValue.add(input.id)
    nodes.push({ ...node, targets: targets[i]! })
  }
  return { nodes: nodes.reverse(), rest }
}

/**
 * Runs the first half of a backward pass: computes only the gradients on paths from `x` to the output.
 * Keeps the gradients from which all other paths start, for the second half. Each gradient function
 * computes one input's gradient, so nothing is computed twice.
 *
 * @returns the gradient of the input, and the second half; see `Recording.backwardInput`
 */
export function walkInput(nodes: readonly DependentNode[], pass: Omit<BackwardPass, 'onGradient'>) {
  const fromX = new Set([pass.x.id])
  for (const node of nodes) {
    if (!node.targets.some((key) => fromX.has(node.inputs[key]!.id))) continue
    for (const output of node.outputs) fromX.add(output.id)
  }
  const gradients = gradientSums(pass.value, pass.dy, true)
  const later: DependentNode[] = []
  try {
    for (let i = nodes.length - 1; i >= 0; i--) {
      const node = nodes[i]!
      const now = node.targets.filter((key) => fromX.has(node.inputs[key]!.id))
      const rest = node.targets.filter((key) => !now.includes(key))
      if (now.length > 0) gradients.propagate({ ...node, targets: now })
      if (rest.length > 0) later.unshift({ ...node, targets: rest })
      // Keep the gradients of the outputs only for nodes that the second half needs.
      else gradients.releaseOutputs(node)
    }
    return {
      inputGradient: gradients.ofInput(pass),
      /** Runs the second half: computes the gradients of the parameters. */
      finish(onGradient: GradientListener) {
        walkFrom(gradients, later, { ...pass, onGradient })
      },
      /** Frees the tensors that the first half kept for the second. */
      dispose: gradients.dispose,
    }
  } catch (error) {
    gradients.dispose()
    throw error
  }
}

/** Runs a whole backward pass: propagates `dy` through the nodes, from the last to the first. */
export function walkBackward(
  nodes: readonly DependentNode[],
  pass: BackwardPass,
): Tensor | undefined {
  const gradients = gradientSums(pass.value, pass.dy)
  try {
    walkFrom(gradients, nodes, pass)
    return gradients.ofInput(pass)
  } finally {
    gradients.dispose()
  }
}

function walkFrom(
  gradients: Gradients,
  nodes: readonly DependentNode[],
  { wanted, onGradient }: Pick<BackwardPass, 'wanted' | 'onGradient'>,
): void {
  /** The number of pending uses of each requested parameter. */
  const pending = new Map<number, number>()
  for (const { inputs, targets } of nodes) {
    for (const key of targets) {
      const { id } = inputs[key]!
      if (wanted.has(id)) pending.set(id, (pending.get(id) ?? 0) + 1)
    }
  }
  const emit = (id: number) => {
    const parameter = wanted.get(id)
    if (parameter !== undefined && (pending.get(id) ?? 0) === 0) {
      const gradient = gradients.take(id)
      if (gradient !== undefined) onGradient(parameter, gradient)
    }
  }
  for (let i = nodes.length - 1; i >= 0; i--) {
    const node = nodes[i]!
    gradients.propagate(node)
    gradients.releaseOutputs(node)
    for (const key of node.targets) {
      const { id } = node.inputs[key]!
      if (pending.has(id)) pending.set(id, pending.get(id)! - 1)
      emit(id)
    }
  }
}

function inputGradients(node: DependentNode, dys: (Tensor | undefined)[]): Tensor[] {
  const { gradient, kernelName, targets } = node
  if (gradient === undefined) throw tsrError('ERR_TSR_NO_GRADIENT', { kernel: kernelName })
  const thunks = gradient(dys)
  return targets.map((key) => {
    const kernel = `${kernelName} (${key})`
    if (thunks[key] === undefined) throw tsrError('ERR_TSR_NO_GRADIENT', { kernel })
    return thunks[key]()
  })
}

type Gradients = ReturnType<typeof gradientSums>

/**
 * Creates sums of gradients, by the id of the tensor that they belong to. They own all sums except `dy`.
 *
 * @param outlives - whether to clone `dy`, for a pass that continues after `dy` may be disposed
 */
function gradientSums(value: Tensor, dy: Tensor, outlives = false) {
  const sums = new Map([[value.id, outlives ? tf.keep(tf.clone(dy)) : dy]])
  const free = (sum: Tensor | undefined) => {
    if (sum !== dy) sum?.dispose()
  }
  const add = (id: number, gradient: Tensor) => {
    const sum = sums.get(id)
    if (sum === undefined) {
      sums.set(id, gradient)
      return
    }
    sums.set(id, tf.keep(tf.add(sum, gradient)))
    free(sum)
    gradient.dispose()
  }
  /** Removes a sum and returns it. The caller then owns the tensor. */
  const take = (id: number) => {
    const sum = sums.get(id)
    sums.delete(id)
    return sum === dy ? tf.keep(tf.clone(sum)) : sum
  }
  return {
    take,

    /**
     * Computes the gradients of a node's targets from the gradients of its outputs, and adds them to the
     * sums.
     */
    propagate(node: DependentNode) {
      const dys = node.outputs.map(({ id }) => sums.get(id))
      const results = ownedResults(() => inputGradients(node, dys))
      node.targets.forEach((key, k) => {
        add(node.inputs[key]!.id, results[k]!)
      })
    },

    releaseOutputs({ outputs }: DependentNode) {
      for (const { id } of outputs) {
        free(sums.get(id))
        sums.delete(id)
      }
    },

    /** Returns the gradient of the input, which the caller disposes; undefined unless requested. */
    ofInput({ x, needsInputGradient }: Pick<BackwardPass, 'x' | 'needsInputGradient'>) {
      return needsInputGradient ? (take(x.id) ?? tf.keep(tf.zeros(x.shape))) : undefined
    },

    dispose: () => {
      sums.forEach(free)
      sums.clear()
    },
  }
}
