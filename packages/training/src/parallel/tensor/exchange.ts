import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { isLocal, type Exchange, type LocalSegment } from '../../model/segment.ts'
import { backwardLabel, operate, type Operation } from './operations.ts'

/** An operation between ranks as a segment, which a pass can also run inside. */
export interface LayerExchange extends Exchange {
  /** On the tape; blocks. */
  inPass(x: Tensor): Tensor
}

/** A layer in one form for both ways: `recordSegments` cuts it, `through` runs it in one piece. */
export type LayerSegment = LocalSegment | LayerExchange

/** @param back - the label of the backward pass */
export function exchange(
  operation: Operation,
  group: ProcessGroup,
  label: string,
  back = backwardLabel(label),
): LayerExchange {
  const { forward, backward } = operation
  return {
    inPass: (x) => operate(operation, x, group, label),
    forward: (x) => forward.between(x, group, label),
    backward: (dy) => backward.between(dy, group, back),
  }
}

/** The forward pass of a layer in one piece. */
export function through(segments: readonly LayerSegment[], x: Tensor): Tensor {
  return segments.reduce(
    (h, segment) => (isLocal(segment) ? segment.forward(h) : segment.inPass(h)),
    x,
  )
}
