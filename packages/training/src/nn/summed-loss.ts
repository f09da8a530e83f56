import { shown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { record } from '../autograd/record.ts'
import { takeScalar } from '../backend/host-memory.ts'
import type { Loss } from './loss.ts'
import { isTensor, tf } from '../tfjs/tfjs.ts'

/**
 * The sum over the examples of a loss that is their sum or their mean. A loss that does not say which
 * it is (see `Loss.reduction`) is tried once, on the first batch that it gets: with all examples twice
 * a mean stays as it is, and a sum doubles.
 *
 * @throws ERR_TSR_ARGUMENT unless it is a function; from the loss, when it is neither a sum nor a mean
 */
export function summed(loss: Loss): Loss {
  if (typeof loss !== 'function') {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'loss',
      value: typeof loss,
      expected: 'a function of the outputs and the labels, for example crossEntropy',
    })
  }
  if (loss.summed !== undefined) return loss.summed
  if (loss.reduction === 'sum' && loss.record !== undefined) return loss
  return summing(loss, loss.reduction && loss.reduction === 'mean')
}

/** @param isMean - undefined if that is to be tried */
function summing(given: Loss, isMean: boolean | undefined): Loss {
  const loss = Object.assign(
    (outputs: Tensor, labels: Tensor) => checkScalar(given(outputs, labels)),
    given,
  )
  const compute = (outputs: Tensor, labels: Tensor): Tensor => {
    isMean ??= tryReduction(loss, outputs, labels) === 'mean'
    return isMean ? tf.mul(loss(outputs, labels), labels.shape[0]) : loss(outputs, labels)
  }
  return Object.assign(compute, {
    reduction: 'sum' as const,
    ...(loss.countCorrect !== undefined && { countCorrect: loss.countCorrect }),
    record: (outputs: Tensor, labels: Tensor) => {
      isMean ??= tryReduction(loss, outputs, labels) === 'mean'
      if (!isMean && loss.record !== undefined) return loss.record(outputs, labels)
      return record((x) => compute(x, labels), outputs, [], { needsInputGradient: true })
    },
  })
}

/** @param value - what a loss of the user has returned */
function checkScalar(value: Tensor): Tensor {
  if (isTensor(value) && value.size === 1) return value
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'the result of the loss',
    value: isTensor(value) ? `a tensor of shape [${value.shape.join(', ')}]` : shown(value),
    expected: 'a tensor with one value: the mean or the sum over the examples, not a promise',
  })
}

/** Whether a loss is the mean over the examples or their sum. */
function tryReduction(loss: Loss, outputs: Tensor, labels: Tensor): 'mean' | 'sum' {
  const double = (tensor: Tensor) => tf.concat([tensor, tensor], 0)
  const a = takeScalar(tf.tidy(() => loss(outputs, labels)))
  const b = takeScalar(tf.tidy(() => loss(double(outputs), double(labels))))
  if (typeof a !== 'number' || typeof b !== 'number') {
    return refuse('a loss without reduction, on a backend whose values have to be fetched')
  }
  const ratio = b / a
  // Of a loss that is not a number, a step says so.
  if (a === 0 || Number.isNaN(a) || Math.abs(ratio - 1) < 1e-3) return 'mean'
  if (Math.abs(ratio - 2) < 2e-3) return 'sum'
  return refuse(`a loss that becomes ${ratio.toPrecision(4)} times as large for twice the examples`)
}

function refuse(value: string): never {
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'loss',
    value,
    expected:
      "the mean or the sum over the examples; say which by loss.reduction = 'mean' or 'sum'",
  })
}
