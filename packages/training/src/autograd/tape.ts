import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'

/*
 * Everything that relies on private parts of TensorFlow.js' engine is in this file; `self-test.ts`
 * checks that they are as expected.
 */

/** One operation on the tape. Its gradients are computed lazily, by one function per input. */
export interface TapeNode {
  readonly inputs: Readonly<Record<string, Tensor>>
  readonly outputs: readonly Tensor[]
  readonly saved?: readonly Tensor[]
  readonly kernelName: string
  readonly gradient?: (dys: (Tensor | undefined)[]) => Readonly<Record<string, () => Tensor>>
}

type Each<K extends string, T> = Readonly<Record<K, T>>

interface PrivateEngine {
  startTape(): void
  endTape(): void
  /** The function behind tf.customGrad. */
  runKernelFunc<K extends string>(call: {
    readonly inputs: Each<K, Tensor>
    readonly forwardFunc: (backend: unknown, save: (tensors: Tensor[]) => void) => Tensor
    readonly backwardsFunc: (dy: Tensor, saved: Tensor[]) => Each<K, () => Tensor>
  }): Tensor
  readonly state: {
    activeTape: TapeNode[] | null
    gradientDepth: number
    readonly activeScope: { readonly id: number } | null
  }
}

const engine = tf.engine() as unknown as PrivateEngine

/**
 * Runs `forward` with the tape switched on and returns the value and the tape. The engine forgets the
 * tape, so the backward pass may follow at any time or never.
 *
 * `forward` must be synchronous, because the engine has only one tape.
 */
export function captureTape(forward: () => Tensor): { value: Tensor; tape: readonly TapeNode[] } {
  if (engine.state.gradientDepth !== 0) {
    throw tsrError('ERR_TSR_NESTED_RECORDING', {})
  }
  engine.startTape()
  let tape: TapeNode[] = []
  try {
    const value = tf.tidy(() => {
      const y = forward()
      tape = engine.state.activeTape!
      // If no operation made the output (it may be the input), it belongs to the caller: return a clone.
      return tf.keep(isProduced(y, tape) ? y : tf.clone(y))
    })
    return { value, tape }
  } catch (error) {
    disposeTape(engine.state.activeTape ?? [])
    throw error
  } finally {
    engine.endTape()
    engine.state.activeTape = null
  }
}

export function isTapeActive(): boolean {
  return engine.state.gradientDepth > 0
}

export function disposeTape(tape: readonly TapeNode[]): void {
  for (const { saved } of tape) for (const tensor of saved ?? []) tensor.dispose()
}

/**
 * Runs `compute` in a tidy scope and returns its tensors, which the caller owns. Clones tensors that
 * existed before: a gradient function may return its argument.
 */
export function ownedResults(compute: () => readonly Tensor[]): Tensor[] {
  return tf.tidy(() => {
    const scope = engine.state.activeScope!.id
    const seen = new Set<Tensor>()
    return compute().map((tensor) => {
      const own = tensor.scopeId === scope && !tensor.kept && !seen.has(tensor)
      seen.add(tensor)
      return tf.keep(own ? tensor : tf.clone(tensor))
    })
  })
}

function isProduced(y: Tensor, tape: readonly TapeNode[]): boolean {
  return tape.some((node) => node.outputs.some((output) => output.id === y.id))
}

/** An operation with its own gradients, for `withLazyGradients`. */
export interface LazyOperation<K extends string> {
  forward(): Tensor
  /**
   * One function per input that computes its gradient. They are called in order, and only for the inputs
   * whose gradients are requested.
   *
   * @param inputs - the inputs of the forward pass
   */
  gradients(dy: Tensor, inputs: Each<K, Tensor>): Each<K, () => Tensor>
}

/** Like tf.customGrad, but computes only the requested gradients. */
export function withLazyGradients<K extends string>(
  inputs: Each<K, Tensor>,
  operation: LazyOperation<K>,
): Tensor {
  const keys = Object.keys(inputs) as K[]
  return engine.runKernelFunc<K>({
    inputs,
    forwardFunc: (_, save) => {
      save(keys.map((key) => inputs[key]))
      return operation.forward()
    },
    backwardsFunc: (dy, saved) => {
      const entries = keys.map((key, i) => [key, saved[i]!] as const)
      return operation.gradients(dy, Object.fromEntries(entries) as Each<K, Tensor>)
    },
  })
}
