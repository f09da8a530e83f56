import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'

/** By what holds the values: copies and other shapes of a tensor have the same. */
const partial = new WeakSet<object>()

/** Says of the output of a layer that other ranks have the rest of its last axis. */
export function markPartial(scores: Tensor): Tensor {
  partial.add(scores.dataId)
  return scores
}

/** @throws ERR_TSR_ARGUMENT for scores of some of the classes: it would be the loss of a part */
export function refusePartial(scores: Tensor): void {
  if (!partial.has(scores.dataId)) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'crossEntropy(logits, labels)',
    value: `[${scores.shape.join(', ')}], the scores of this rank's part of the classes`,
    expected:
      "those of all: vocabParallelCrossEntropy(group), or gather: 'replicated' of the layer",
  })
}
