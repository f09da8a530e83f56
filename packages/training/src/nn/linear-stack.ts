import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkOutputGradient } from '../autograd/check-tensors.ts'
import type { GradientListener, Recording, RecordOptions } from '../model/recording.ts'
import { currentEager, type Eager } from '../backend/tensorflow/eager.ts'
import { currentHeap } from '../backend/wasm/heap.ts'
import { CalledPasses } from './linear-calls.ts'
import { EagerPasses } from './linear-eager.ts'
import { HeapPasses } from './linear-heap.ts'
import type { LinearPasses } from './linear-passes.ts'
import { tensorPasses } from './linear-tensors.ts'
import type { Linear } from './linear.ts'

/** Multiplications of a forward pass in one call where TensorFlow would take several threads, 0.3 ms. */
const LONGEST_CALL = 2 ** 24
/** Elements of its weights, 4 MiB. */
const LARGEST_CALL = 2 ** 20

/**
 * Forward and backward passes of linear layers in a row, written out: the tape's gradients without
 * its bookkeeping, and on wasm and tensorflow without a tensor for each small operation.
 *
 * The parameters must keep their values until the backward pass is done.
 *
 * @param x - [batch, inputs of the first layer]
 */
export function recordLinearStack(
  layers: readonly Linear[],
  x: Tensor,
  { needsInputGradient }: RecordOptions,
): Recording {
  checkInput(x, layers[0]!)
  const weights = layers.map(({ weight }) => weight.value)
  const passes = passesFor(layers, x, needsInputGradient)
  let state: 'recorded' | 'halved' | 'spent' | 'disposed' = 'recorded'
  const check = (dy: Tensor): void => {
    if (state !== 'recorded') throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
    checkOutputGradient(dy, passes.output)
    const stale = layers.find(({ weight }, i) => weight.value !== weights[i])
    if (stale !== undefined) {
      throw tsrError('ERR_TSR_STALE_RECORDING', { parameter: stale.weight.name })
    }
  }
  return {
    value: passes.output,
    backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
      check(dy)
      state = 'spent'
      return passes.backward(dy, onGradient)
    },
    backwardInput(dy: Tensor): Tensor | undefined {
      check(dy)
      state = 'halved'
      return passes.backwardInput(dy)
    },
    backwardParameters(onGradient: GradientListener): void {
      if (state !== 'halved') throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      state = 'spent'
      passes.backwardParameters(onGradient)
    },
    dispose(): void {
      if (state === 'disposed') return
      state = 'disposed'
      passes.dispose()
    },
  }
}

function passesFor(
  layers: readonly Linear[],
  x: Tensor,
  needsInputGradient: boolean,
): LinearPasses {
  const heap = currentHeap()
  if (heap !== undefined) return new HeapPasses(heap, layers, x, needsInputGradient)
  const eager = currentEager()
  if (eager === undefined) return tensorPasses(layers, x, needsInputGradient)
  const { kernels } = eager
  return kernels !== undefined && suitsCalls(eager, layers, x)
    ? new CalledPasses(eager, kernels, layers, x, needsInputGradient)
    : new EagerPasses(eager, layers, x, needsInputGradient)
}

/**
 * Whether a call for each pass is worth that gradients come at its end: those of small layers do not
 * fill a bucket that could be sent meanwhile.
 */
function suitsCalls({ threads }: Eager, layers: readonly Linear[], x: Tensor): boolean {
  const elements = layers.reduce((sum, { weight }) => sum + weight.value.size, 0)
  if (elements > LARGEST_CALL) return false
  return threads === 1 || elements * x.shape[0] <= LONGEST_CALL
}

/** Kernels trust shapes, and would read beyond the end. */
function checkInput({ shape, dtype }: Tensor, { weight }: Linear): void {
  const fits = shape.length === 2 && shape[0] > 0 && shape[1] === weight.shape[0]
  if (fits && dtype === 'float32') return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: `the input of ${weight.name}`,
    value: `a tensor of shape [${shape.join(', ')}]${dtype === 'float32' ? '' : `, ${dtype}`}`,
    expected: `[batch, ${String(weight.shape[0])}]`,
  })
}
