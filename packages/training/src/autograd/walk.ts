import { tsrError } from '@tsrun/core'
import { addInPlace } from '../backend/arithmetic.ts'
import type { Parameter } from '../model/parameter.ts'
import type { BackwardPasses, GradientListener } from '../model/recording.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { disposeTape, ownedResults, type TapeNode } from './tape.ts'

/** An operation on the tape, with the names of those inputs that need a gradient. */
interface DependentNode extends TapeNode {
  readonly targets: readonly string[]
}

/** Splits the tape into the nodes on paths from `sources` (tensor ids) to `y`, in order, and the `rest`. */
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

/** The tensors of a forward pass. */
interface TapedPass {
  readonly value: Tensor
  readonly x: Tensor
  /** The parameters whose gradients are requested, by tensor id. */
  readonly wanted: ReadonlyMap<number, Parameter>
  readonly needsInputGradient: boolean
}

/** Returns backward passes that propagate gradients through the nodes, from the last to the first. */
export function tapePasses(
  nodes: readonly DependentNode[],
  { value, x, wanted, needsInputGradient }: TapedPass,
): BackwardPasses {
  /** The state that `backwardInput` keeps for `backwardParameters`. */
  let half: { readonly gradients: Gradients; readonly later: DependentNode[] } | undefined

  const inputGradient = (gradients: Gradients) =>
    needsInputGradient ? (gradients.take(x.id) ?? tf.keep(tf.zeros(x.shape))) : undefined
  return {
    backward(dy, onGradient) {
      const gradients = gradientSums(value, dy)
      try {
        walk(gradients, nodes, wanted, onGradient)
        return inputGradient(gradients)
      } finally {
        gradients.dispose()
      }
    },
    /**
     * Computes only the gradients on paths from `x` to the output. Keeps the gradients from which all other
     * paths start. Each gradient function computes one input's gradient, so nothing is computed twice.
     */
    backwardInput(dy) {
      const fromX = new Set([x.id])
      for (const node of nodes) {
        if (!node.targets.some((key) => fromX.has(node.inputs[key]!.id))) continue
        for (const output of node.outputs) fromX.add(output.id)
      }
      const gradients = gradientSums(value, dy, true)
      const later: DependentNode[] = []
      try {
        for (let i = nodes.length - 1; i >= 0; i--) {
          const node = nodes[i]!
          const now = node.targets.filter((key) => fromX.has(node.inputs[key]!.id))
          const rest = node.targets.filter((key) => !now.includes(key))
          if (now.length > 0) gradients.propagate({ ...node, targets: now })
          if (rest.length > 0) later.unshift({ ...node, targets: rest })
          // Keep the gradients of outputs only for nodes that `backwardParameters` needs.
          else gradients.releaseOutputs(node)
        }
        const gradient = inputGradient(gradients)
        half = { gradients, later }
        return gradient
      } catch (error) {
        gradients.dispose()
        throw error
      }
    },
    backwardParameters(onGradient) {
      const { gradients, later } = half!
      half = undefined
      try {
        walk(gradients, later, wanted, onGradient)
      } finally {
        gradients.dispose()
      }
    },
    dispose() {
      half?.gradients.dispose()
      disposeTape(nodes)
      value.dispose()
    },
  }
}

/** Propagates the gradients through the nodes, and reports the gradients of requested parameters. */
function walk(
  gradients: Gradients,
  nodes: readonly DependentNode[],
  wanted: TapedPass['wanted'],
  onGradient: GradientListener,
): void {
  /** The number of pending uses of each requested parameter. */
  const pending = new Map<number, number>()
  for (const { inputs, targets } of nodes) {
    for (const key of targets) {
      const { id } = inputs[key]!
      if (wanted.has(id)) pending.set(id, (pending.get(id) ?? 0) + 1)
    }
  }
  for (let i = nodes.length - 1; i >= 0; i--) {
    const node = nodes[i]!
    gradients.propagate(node)
    gradients.releaseOutputs(node)
    for (const key of node.targets) {
      const { id } = node.inputs[key]!
      const uses = pending.get(id)
      if (uses === undefined) continue
      pending.set(id, uses - 1)
      if (uses > 1) continue
      const gradient = gradients.take(id)
      if (gradient !== undefined) onGradient(wanted.get(id)!, gradient)
    }
  }
}

function inputGradients(node: DependentNode, dys: (Tensor | undefined)[]): Tensor[] {
  const { gradient, kernelName, targets } = node
  if (gradient === undefined) throw tsrError('ERR_TSR_NO_GRADIENT', { kernel: kernelName })
  const thunks = gradient(dys)
  return targets.map((key) => {
    const thunk = thunks[key]
    if (thunk === undefined) {
      throw tsrError('ERR_TSR_NO_GRADIENT', { kernel: `${kernelName} (${key})` })
    }
    return thunk()
  })
}

type Gradients = ReturnType<typeof gradientSums>

/**
 * Creates sums of gradients by tensor id. Owns all tensors in the sums except `dy`.
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
    const areFloats = sum.dtype === 'float32' && gradient.dtype === 'float32'
    if (sum === dy || !areFloats || !addInPlace(sum, gradient)) {
      sums.set(id, tf.keep(tf.add(sum, gradient)))
      free(sum)
    }
    gradient.dispose()
  }
  return {
    /** Removes a sum and returns it. The caller then owns the tensor. */
    take(id: number) {
      const sum = sums.get(id)
      sums.delete(id)
      return sum === dy ? tf.keep(tf.clone(sum)) : sum
    },

    /** Computes a node's input gradients from its output gradients, and adds them to the sums. */
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

    dispose: () => {
      sums.forEach(free)
      sums.clear()
    },
  }
}
