import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from './parameter.ts'

/**
 * A part of a model that contains no collectives and can be recorded, for example any module without
 * collectives.
 */
export interface LocalSegment {
  readonly parameters: readonly Parameter[]
  /** Computes the output by operations that the tape can differentiate. */
  forward(x: Tensor): Tensor
}

/** A collective between two local segments. All ranks must run the same exchanges in the same order. */
export interface Exchange {
  /**
   * @param x - the input; the caller does not dispose it before the promise has settled
   * @returns the output, which the caller disposes
   */
  forward(x: Tensor): Promise<Tensor>
  /** Returns the gradient of the input. Called only if that gradient is needed. */
  backward(dy: Tensor): Promise<Tensor>
}

/** A link of a chain of computations and collectives; see `recordSegments`. */
export type Segment = LocalSegment | Exchange

export function isLocal(segment: Segment): segment is LocalSegment {
  return 'parameters' in segment
}
