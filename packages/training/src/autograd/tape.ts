import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'

/** One operation on TensorFlow.js' tape. Its gradient functions are lazy: one thunk an input. */
export interface TapeNode {
  readonly inputs: Readonly<Record<string, Tensor>>
  readonly outputs: readonly Tensor[]
  readonly saved?: readonly Tensor[]
  readonly kernelName: string
  readonly gradient?: (dys: (Tensor | undefined)[]) => Readonly<Record<string, () => Tensor>>
}

/** The fields of the engine that this project relies on though they are private. */
interface PrivateEngine {
  startTape(): void
  endTape(): void
  readonly state: {
    activeTape: TapeNode[] | null
    gradientDepth: number
    readonly activeScope: { readonly id: number } | null
  }
}

const engine = tf.engine() as unknown as PrivateEngine

/**
 * Runs `forward` with the tape on and hands both over: the engine forgets the tape, so that the
 * backward pass may come later or never.
 *
 * Nothing asynchronous may happen inside: the tape is global.
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
      // An output that no operation made (the input itself) belongs to somebody else.
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

/** Frees what the operations saved for their gradients. */
export function disposeTape(tape: readonly TapeNode[]): void {
  for (const { saved } of tape) for (const tensor of saved ?? []) tensor.dispose()
}

/**
 * Runs `compute` in a scope of its own and returns its tensors as the caller's: those that existed
 * before (a gradient function may return what it was given) are cloned.
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
