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
  readonly shift: Parameter | undefined
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

/**
 * Returns a function that computes its result again only if an argument has changed. For each first
 * argument, it keeps the last result.
 */
export function remembered<A extends readonly [object, ...unknown[]], R>(
  compute: (...given: A) => R,
): (...given: A) => R {
  const known = new WeakMap<object, { readonly given: A; readonly result: R }>()
  return (...given) => {
    const last = known.get(given[0])
    const isSame = last?.given.length === given.length
    if (isSame && last.given.every((value, i) => value === given[i])) return last.result
    const result = compute(...given)
    known.set(given[0], { given, result })
    return result
  }
}

/** Joins the operations of modules that are applied one after the other; undefined if some are unknown. */
export function joinedOperations(
  parts: readonly (readonly Operation[] | undefined)[],
): readonly Operation[] | undefined {
  const [first, ...others] = parts
  if (first === undefined || others.includes(undefined)) return undefined
  return others.length === 0 ? first : joined(first, ...(others as (readonly Operation[])[]))
}

const joined = remembered(
  (...parts: readonly [readonly Operation[], ...(readonly Operation[])[]]) => parts.flat(),
)

/** The parameters of operations, in order. */
export const parametersIn = remembered((operations: readonly Operation[]): readonly Parameter[] =>
  operations.flatMap((operation) => {
    switch (operation.type) {
      case 'linear':
        return [operation.weight, operation.bias]
      case 'normalize':
        return operation.shift === undefined ? operation.scale : [operation.scale, operation.shift]
      case 'head':
        return operation.weight
      case 'residual':
        return parametersIn(operation.operations)
      case 'attention':
      case 'gate':
        return []
    }
  }),
)
