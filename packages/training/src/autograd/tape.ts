import { tsrError } from '@tsrun/core'
import type { Differentiable } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

/*
 * This file contains all code that relies on private parts of the TensorFlow.js engine. `self-test.ts`
 * tests that code at run time.
 */

/**
 * An operation on the tape. `gradient` returns one function per input, which computes the gradient of
 * that input when called.
 */
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
  /** The implementation of tf.customGrad. */
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
 * Runs `forward` with an active tape, and returns the value and the tape. The engine drops its reference
 * to the tape, so a backward pass can run at any later time.
 *
 * `forward` must be synchronous, because the engine has only one active tape.
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
      // If no operation on the tape created the output, it may be a tensor of the caller. Return a clone.
      const isProduced = tape.some(({ outputs }) => outputs.some(({ id }) => id === y.id))
      return tf.keep(isProduced ? y : tf.clone(y))
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
 * Runs `compute` in a tf.tidy and returns its tensors, which the caller then owns. Clones tensors that
 * existed before, because a gradient function may return its argument.
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

/** Like tf.customGrad. `run` must not keep the inputs, because the tape saves clones of them. */
export function withGradients(
  inputs: readonly Tensor[],
  run: (...inputs: Tensor[]) => Differentiable,
): Tensor {
  return tf.customGrad((...args) => {
    const save = args.pop() as unknown as (tensors: Tensor[]) => void
    const { value, saved, gradients } = run(...(args as Tensor[]))
    save(saved)
    return { value, gradFunc: gradients }
  })(...inputs)
}

/** An operation with custom gradients, for `withLazyGradients`. */
export interface LazyOperation<K extends string> {
  forward(): Tensor
  /** Whether `gradients` needs the output; default false. */
  readonly savesOutput?: boolean
  /**
   * Returns one function per input, which computes the gradient of that input. The functions are called
   * in order, and only for requested gradients.
   *
   * @param inputs - the inputs of the forward pass
   * @param output - the result of the forward pass, if it is saved
   */
  gradients(dy: Tensor, inputs: Each<K, Tensor>, output?: Tensor): Each<K, () => Tensor>
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
      const output = operation.forward()
      save([...keys.map((key) => inputs[key]), ...(operation.savesOutput === true ? [output] : [])])
      return output
    },
    backwardsFunc: (dy, saved) => {
      const entries = keys.map((key, i) => [key, saved[i]!] as const)
      const given = Object.fromEntries(entries) as Each<K, Tensor>
      return operation.gradients(dy, given, saved[keys.length])
    },
  })
}
