import type { Rank } from '@tensorflow/tfjs-core'
import { argumentError, count, declareOptions, filled, finite, type Rules } from '@tsrun/core'
import { withGradients, withLazyGradients } from '../autograd/tape.ts'
import { valuesAtHand } from '../backend/host-memory.ts'
import { ofKind, type Module, type Separable } from '../model/module.ts'
import { remembered, type Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { uniform } from './init.ts'
import { createParameter } from './initialize.ts'
import { onRows } from './linear.ts'

/** Options of `Embedding` and `PositionEmbedding`. */
export interface EmbeddingOptions {
  /** The prefix of the name of the parameter: `<name>.weight`. */
  readonly name: string
  /** The number of different ids. */
  readonly count: number
  /** The number of values for each id. */
  readonly width: number
  /** The seed of the initial values, which also depend on the name of the parameter; default 0. */
  readonly seed?: number
  /** The standard deviation of the initial values; default 0.02. */
  readonly deviation?: number
}

const readOptions = declareOptions({
  name: filled('the prefix of the name of its parameter, as in wte'),
  count: count({ from: 1 }),
  width: count({ from: 1 }),
  seed: finite().default(0),
  deviation: finite().default(0.02),
} satisfies Rules<EmbeddingOptions>)

/** Looks up a row of a table [count, width] for each id. */
export class Embedding implements Module {
  readonly kind: 'embedding' | 'positions' = 'embedding'
  readonly weight: Parameter

  constructor(options: EmbeddingOptions) {
    const { name, count, width, seed, deviation } = readOptions(options)
    this.weight = tableParameter(`${name}.weight`, [count, width], seed, deviation)
  }

  get parameters(): readonly Parameter[] {
    return [this.weight]
  }

  /** Returns false if another module computes the ids: to check them, the host would have to read them. */
  isRepeatable(ids?: Tensor): boolean {
    if (ids !== undefined) checkIds(ids, this.weight)
    return ids !== undefined
  }

  /**
   * @param ids - int32 [...], each in [0, count)
   * @returns [..., width]
   * @throws ERR_TSR_ARGUMENT
   */
  forward(ids: Tensor): Tensor {
    checkIds(ids, this.weight)
    return lookUp(this.weight.value, ids)
  }
}

/** Returns the rows of a table for ids of any shape. Differentiable in `table`. */
export function lookUp(table: Tensor, ids: Tensor): Tensor {
  const [count] = table.shape
  return withGradients([table], () => ({
    value: tf.gather(table, ids),
    saved: [ids],
    gradients: (dy, [ids]) => [
      tf.unsortedSegmentSum(rowsOf(dy), tf.reshape<Rank.R1>(ids!, [-1]), count),
    ],
  }))
}

/**
 * @throws ERR_TSR_ARGUMENT unless the ids are int32 and within the table. Ids that cannot be read
 *   synchronously are not checked.
 */
export function checkIds(ids: Tensor, { name, shape, shard }: Parameter): void {
  const count = (shard?.shape ?? shape)[0]!
  const wrong =
    ids.dtype === 'int32' ? valuesAtHand(ids)?.find((id) => !(id >= 0 && id < count)) : ids.dtype
  if (wrong === undefined) return
  throw argumentError(`an input of ${name}`, wrong, `int32 from 0 to ${count - 1}`)
}

/** Creates the table of an embedding or of a `Head`. */
export function tableParameter(
  name: string,
  shape: readonly [number, number],
  seed: number,
  deviation: number,
): Parameter {
  return createParameter(name, shape, uniform(Math.sqrt(3) * deviation), seed)
}

/** Returns the positions, in the whole sequence, of the `length` rows that this rank holds. */
export type Positions = (length: number) => Int32Array

/** The positions of a rank that holds whole sequences: 0, 1, 2 and so on. */
export const inOrder: Positions = (length) => new Int32Array(length).map((_, position) => position)

/** Adds a learned position vector to each element of a sequence. */
export class PositionEmbedding extends Embedding implements Separable {
  override readonly kind = 'positions'
  /**
   * The positions of the rank's rows. Context parallelism, which divides sequences among ranks,
   * replaces the default.
   */
  positions: Positions = inOrder

  override isRepeatable(): boolean {
    return this.positions === inOrder
  }

  /**
   * @param x - [batch, length, width]
   * @throws ERR_TSR_ARGUMENT when the sequence is longer than the table
   */
  override forward(x: Tensor): Tensor {
    return this.forwardWith([this.weight.value], x)
  }

  forwardWith([table]: readonly Tensor[], x: Tensor): Tensor {
    const positions = this.positions(x.shape[1]!)
    const count = this.weight.shape[0]!
    if (positions.some((position) => position >= count)) {
      throw argumentError(
        'a sequence',
        `one of ${Math.max(...positions) + 1} positions`,
        `at most ${count}, the block size`,
      )
    }
    return tf.add(x, lookUp(table!, tf.tensor1d(positions, 'int32')))
  }
}

function rowsOf(x: Tensor): Tensor {
  return tf.reshape(x, [-1, x.shape.at(-1)!])
}

/** Whether a module adds position embeddings. */
export const hasPositions = ofKind<PositionEmbedding>('positions')

const headOperations = remembered((weight: Parameter): Operation[] => [{ type: 'head', weight }])

/** Computes x W' for W [count, width], which may be the table of an embedding. */
export class Head implements Module {
  readonly kind = 'head'
  readonly weight: Parameter

  constructor(weight: Parameter) {
    this.weight = weight
  }

  get parameters(): readonly Parameter[] {
    return [this.weight]
  }

  isRepeatable(): boolean {
    return true
  }

  operations(): readonly Operation[] {
    return headOperations(this.weight)
  }

  /**
   * @param x - [..., width]
   * @returns [..., count]
   */
  forward(x: Tensor): Tensor {
    const weight = this.weight.value
    return withLazyGradients(
      { x, weight },
      {
        forward: () => onRows(x, (rows) => tf.matMul(rows, weight, false, true)),
        gradients: (dy, { x, weight }) => ({
          x: () => onRows(dy, (rows) => tf.matMul(rows, weight)),
          weight: () => tf.matMul(rowsOf(dy), rowsOf(x), true),
        }),
      },
    )
  }
}
