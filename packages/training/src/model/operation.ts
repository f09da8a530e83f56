import type { Parameter } from './parameter.ts'

/** A layer y = activation(x W + b), with the matrix W [inputs, outputs] in memory. */
export interface LinearLayer {
  readonly weight: Parameter
  readonly bias: Parameter
  readonly activation: 'linear' | 'relu'
}

/** A LayerNorm over the last axis; without `shift`, an RMSNorm. */
export interface Normalization {
  readonly scale: Parameter
  readonly shift?: Parameter
  readonly epsilon: number
}

/** The factors of x sigmoid(linear x + cubic x^3). */
export interface GateFactors {
  readonly linear: number
  readonly cubic: number
}

/** An operation on rows [..., width] that some backends record without the tape. */
export type Operation =
  | (LinearLayer & { readonly type: 'linear' })
  | (Normalization & { readonly type: 'normalize' })
  | (GateFactors & { readonly type: 'gate' })
  /** Causal attention of [batch, length, 3 x heads x size]: the queries, keys and values of all heads. */
  | { readonly type: 'attention'; readonly size: number }
  /** x W' for the matrix W [outputs, inputs]. */
  | { readonly type: 'head'; readonly weight: Parameter }
  /** x + f(x), where f runs operations in order: first a normalization, last a linear layer without ReLU. */
  | { readonly type: 'residual'; readonly operations: readonly Operation[] }

/** The parameters of operations, in order. */
export function parametersIn(operations: readonly Operation[]): readonly Parameter[] {
  return operations.flatMap((operation) => {
    switch (operation.type) {
      case 'linear':
        return [operation.weight, operation.bias]
      case 'normalize':
        return [operation.scale, ...(operation.shift === undefined ? [] : [operation.shift])]
      case 'head':
        return [operation.weight]
      case 'residual':
        return parametersIn(operation.operations)
      default:
        return []
    }
  })
}
