import { tsrError } from '@tsrun/core'
import type { TensorContainer } from '@tensorflow/tfjs-core'
import { currentBackend } from '../backend/current.ts'
import { shared } from '../backend/held-values.ts'
import type { Differentiable, Each, LazyOperation, TensorBackend } from '../tfjs/backend.ts'
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

type Thunks = Each<string, () => Tensor>

interface PrivateEngine {
  startScope(): void
  endScope(result?: TensorContainer): void
  startTape(): void
  endTape(): void
  isTapeOn(): boolean
  addTapeNode(
    name: string,
    inputs: Each<string, Tensor | undefined>,
    outputs: Tensor[],
    gradients: (dy: Tensor, saved: Tensor[]) => Thunks,
    saved: Tensor[],
    attributes: object,
  ): void
  customGrad(f: (...args: never[]) => CustomGradient): (...inputs: Tensor[]) => Tensor
  readonly state: {
    activeTape: TapeNode[] | null
    gradientDepth: number
    kernelDepth: number
    readonly activeScope: { readonly id: number } | null
  }
}

interface CustomGradient {
  readonly value: Tensor
  readonly gradFunc: (dy: Tensor, saved: Tensor[]) => Tensor | Tensor[]
}

const engine = tf.engine() as unknown as PrivateEngine
const addTapeNode = engine.addTapeNode.bind(engine)
const customGrad = engine.customGrad.bind(engine)

// TensorFlow.js records the clones of saved outputs before the operation that creates the outputs, so that
// gradients of gradients silently lack a part. Record them after the operation.
engine.addTapeNode = (name, inputs, outputs, gradients, saved, attributes) => {
  if (!isTapeNested()) {
    addTapeNode(name, inputs, outputs, gradients, saved, attributes)
    return
  }
  // The tape cannot deal with the absent inputs of fused kernels.
  const given = Object.entries(inputs).filter(([, input]) => input !== undefined)
  addTapeNode(name, Object.fromEntries(given), outputs, gradients, saved, attributes)
  const tape = engine.state.activeTape!
  const at = tape.length - 1
  if (tape[at]!.outputs === outputs) tape.splice(at - saved.length, 0, tape.pop()!)
}

// TensorFlow.js does not record how tensors that a custom operation computes and saves depend on its inputs.
engine.customGrad = (f) => {
  const operation = customGrad(f)
  return (...inputs) => {
    if (!engine.isTapeOn() || !isTapeNested()) return operation(...inputs)
    return operateNested(byIndex(inputs), () => {
      let saved: Tensor[] = []
      const save = (tensors: Tensor[]) => {
        saved = tensors.map((tensor) => tf.clone(tensor))
      }
      const { value, gradFunc } = f(...([...inputs, save] as never[]))
      const gradients = (dy: Tensor, kept: Tensor[]) =>
        byIndex([gradFunc(dy, kept)].flat().map((gradient) => () => gradient))
      return { value, saved, gradients }
    })
  }
}

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
      return tf.keep(isOutput(y, tape) ? y : tf.clone(y))
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

function isOutput(tensor: Tensor, tape: readonly TapeNode[]): boolean {
  return tape.some(({ outputs }) => outputs.some(({ id }) => id === tensor.id))
}

export function isTapeActive(): boolean {
  return engine.state.gradientDepth > 0
}

/** Whether a gradient is being computed within the function of another gradient. */
export function isTapeNested(): boolean {
  return engine.state.gradientDepth > 1
}

/**
 * The passes of the current backend. There are none within the function of another gradient, which needs the
 * steps of an operation on the tape.
 */
export function fusedPasses(): Partial<TensorBackend> {
  return isTapeNested() ? {} : currentBackend()
}

export function disposeTape(tape: readonly TapeNode[]): void {
  for (const { saved } of tape) for (const tensor of saved ?? []) tensor.dispose()
}

/** Like tf.tidy, but the caller owns claimed tensors. `claim` clones older and repeated tensors. */
function inScope<T extends TensorContainer>(compute: (claim: (tensor: Tensor) => Tensor) => T): T {
  engine.startScope()
  const { id } = engine.state.activeScope!
  let result: T | undefined
  try {
    result = compute((tensor) =>
      tensor.scopeId === id && !tensor.kept ? tf.keep(tensor) : shared(tensor),
    )
    return result
  } finally {
    engine.endScope(result)
  }
}

/** Runs `compute` and returns its tensors, which the caller then owns. Frees all others. */
export function ownedResults(compute: () => readonly Tensor[]): Tensor[] {
  let results: Tensor[] = []
  inScope((claim) => {
    results = compute().map(claim)
  })
  return results
}

/** Like tf.clone, but faster outside of a tape. */
export function cloneOf(tensor: Tensor): Tensor {
  if (engine.isTapeOn()) return tf.clone(tensor)
  const clone = shared(tensor)
  clone.kept = false
  return clone
}

interface Operated {
  readonly value: Tensor
  readonly saved: readonly Tensor[]
  /** Returns functions that compute the gradients of inputs. */
  readonly gradients: (dy: Tensor, saved: Tensor[]) => Thunks
}

/** Runs an operation as one node of the tape, without the kernel calls of `tf.customGrad` for saved tensors. */
function operate(inputs: Each<string, Tensor>, run: () => Operated): Tensor {
  const isTapeOn = engine.isTapeOn()
  if (isTapeOn && isTapeNested()) return operateNested(inputs, run)
  engine.state.kernelDepth++
  try {
    return inScope((claim) => {
      const { value, saved, gradients } = run()
      const save = (tensor: Tensor) => (tensor === value ? shared(tensor) : claim(tensor))
      if (isTapeOn) engine.addTapeNode('', inputs, [value], gradients, saved.map(save), {})
      return value
    })
  } finally {
    engine.state.kernelDepth--
  }
}

/**
 * Like `operate`, within the function of another gradient. Records the steps of the operation too, because
 * the outer gradient flows through saved tensors.
 *
 * @throws ERR_TSR_NO_GRADIENT when a step that computes a saved tensor is not recorded
 */
function operateNested(inputs: Each<string, Tensor>, run: () => Operated): Tensor {
  return tf.tidy(() => {
    const scope = engine.state.activeScope!.id
    const { value, saved, gradients } = run()
    // Only the gradients of the operation lead to this tensor, not those of its steps.
    const result = shared(value)
    result.kept = false
    const kept: Tensor[] = []
    engine.addTapeNode('', inputs, [result], gradients, kept, {})
    for (const tensor of saved) {
      const isComputed = tensor.scopeId >= scope
      if (isComputed && !isOutput(tensor, engine.state.activeTape!)) refuseNested()
      kept.push(tf.keep(tf.clone(tensor === value ? result : tensor)))
    }
    return result
  })
}

/** @throws ERR_TSR_NO_GRADIENT within the function of another gradient */
export function refuseNested(operation = 'this operation'): void {
  if (isTapeNested()) {
    throw tsrError('ERR_TSR_NO_GRADIENT', { kernel: `the gradient of ${operation}` })
  }
}

/** Like tf.customGrad. `run` must not keep the inputs, because the tape shares their memory. */
export function withGradients(
  inputs: readonly Tensor[],
  run: (...inputs: Tensor[]) => Differentiable,
): Tensor {
  return operate(byIndex(inputs), () => {
    const { value, saved, gradients } = run(...inputs)
    return {
      value,
      saved,
      gradients: (dy, saved) => byIndex(gradients(dy, saved).map((gradient) => () => gradient)),
    }
  })
}

/** An array is also an object with the keys 0, 1 and so on. */
function byIndex<T>(values: readonly T[]): Each<string, T> {
  return values as unknown as Each<string, T>
}

/** Like tf.customGrad, but computes only the requested gradients. */
export function withLazyGradients<K extends string>(
  inputs: Each<K, Tensor>,
  operation: LazyOperation<K>,
): Tensor {
  const keys = operation.saves ?? (Object.keys(inputs) as K[])
  return operate(inputs, () => {
    const value = operation.forward()
    const saved = keys.map((key) => inputs[key])
    if (operation.savesOutput === true) saved.push(value)
    return {
      value,
      saved,
      gradients(dy, saved) {
        const given = {} as Record<K, Tensor>
        for (const [i, key] of keys.entries()) given[key] = saved[i]!
        return operation.gradients(dy, given, saved[keys.length])
      },
    }
  })
}
