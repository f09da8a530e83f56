import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from './parameter.ts'

/**
 * A part of a model without collectives, which can be recorded. Any module without collectives is one.
 */
export interface LocalSegment {
  readonly parameters: readonly Parameter[]
  /** Consists of operations that the tape can differentiate. */
  forward(x: Tensor): Tensor
}

/** A collective between two local segments. All ranks run the same ones in the same order. */
export interface Exchange {
  /**
   * @param x - owned by the caller, who keeps it until the promise settles
   * @returns the output, which the caller disposes
   */
  forward(x: Tensor): Promise<Tensor>
  /** Returns the gradient of the input. Called only if it is needed. */
  backward(dy: Tensor): Promise<Tensor>
}

/** A segment of a model that is a chain of computations and collectives; see `recordSegments`. */
export type Segment = LocalSegment | Exchange

export function isLocal(segment: Segment): segment is LocalSegment {
  return 'parameters' in segment
}
