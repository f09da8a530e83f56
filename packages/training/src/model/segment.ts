import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from './parameter.ts'

/** A part of a model that needs no other rank: it can be recorded. A module is one. */
export interface LocalSegment {
  readonly parameters: readonly Parameter[]
  /** Differentiable with the tape. */
  forward(x: Tensor): Tensor
}

/** What the ranks of a group do together between two local segments: all of them, in the same order. */
export interface Exchange {
  /**
   * @param x - the caller's, who keeps it until the promise is settled
   * @returns the caller's to dispose
   */
  forward(x: Tensor): Promise<Tensor>
  /** From the gradient of the output to that of the input; called only where somebody wants it. */
  backward(dy: Tensor): Promise<Tensor>
}

/** A model that is a chain, one segment behind the other, is cut between them, see `recordSegments`. */
export type Segment = LocalSegment | Exchange

export function isLocal(segment: Segment): segment is LocalSegment {
  return 'parameters' in segment
}
