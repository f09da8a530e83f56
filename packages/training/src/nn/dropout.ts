import { argumentError, declareOptions, finite, where, type Rules } from '@tsrun/core'
import { isTapeActive } from '../autograd/tape.ts'
import { scopedTensorFrom } from '../backend/host-memory.ts'
import { ofKind, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { currentPass, type Pass } from '../model/pass.ts'
import { counterHash } from '../random/generator.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import type { Positions } from './embedding.ts'

/** Options of `Dropout`. */
export interface DropoutOptions {
  /** The name of the layer. Layers with different names drop different values. */
  readonly name: string
  /** The probability that a value is dropped, at least 0 and less than 1; default 0.5. */
  readonly rate?: number
  /**
   * The seed of the random numbers; default 0. They also depend on the name, the step and the
   * position in the batch.
   */
  readonly seed?: number
}

/** The validation rule for dropout rates: at least 0 and less than 1. */
export const dropoutRate = where<number>(
  (value) => typeof value === 'number' && value >= 0 && value < 1,
  'at least 0 and less than 1',
)

const readOptions = declareOptions({
  name: where<string>((value) => typeof value === 'string', 'a name for its random values'),
  rate: dropoutRate.default(0.5),
  seed: finite().default(0),
} satisfies Rules<DropoutOptions>)

/**
 * In training, sets values to zero at random and divides the remaining values by 1 - rate (Srivastava et
 * al., 2014). In evaluation, returns the input.
 *
 * The dropped values depend only on the seed, the name, the step and the position in the batch; see
 * `inPass`. Therefore every layout and every recomputed pass drops the same values. With tensor
 * parallelism, each rank must hold all values of the positions that it computes.
 */
export class Dropout implements Module {
  readonly kind = 'dropout'
  readonly parameters: readonly Parameter[] = []
  readonly usesPass = true
  /**
   * The positions of the rows that this rank holds. Set if ranks divide each sequence (the second axis of
   * the input).
   */
  positions: Positions | undefined
  readonly #options: Required<DropoutOptions>

  constructor(options: DropoutOptions) {
    this.#options = readOptions(options)
  }

  /**
   * @param x - [batch, ...]
   * @throws ERR_TSR_ARGUMENT when a recorded pass has no step number; see `inPass`
   */
  forward(x: Tensor): Tensor {
    const pass = droppingPass(this.#options)
    return pass === undefined ? x : tf.tidy(() => tf.mul(x, this.#mask(x.shape, pass)))
  }

  #mask(shape: readonly number[], pass: Pass): Tensor {
    const [rows = 1, ...rest] = shape
    const width = sizeOf(rest)
    const places = this.positions?.(rest[0]!)
    const run = places === undefined ? width : width / places.length
    const mask = new Float32Array(rows * width)
    for (let row = 0; row < rows; row++) {
      const draw = drawsOf(this.#options, pass, row)
      for (let start = 0; start < width; start += run) {
        const place = places === undefined ? 0 : places[start / run]! * run
        const at = row * width + start
        for (let i = 0; i < run; i++) mask[at + i] = draw(place + i)
      }
    }
    return scopedTensorFrom(mask, shape)
  }
}

export const isDropout = ofKind<Dropout>('dropout')

/** The block of attention probabilities that a rank computes at once. */
export interface Probabilities {
  readonly shape: readonly [number, number, number, number]
  /** The positions of the queries and of the keys. A query attends to the keys up to its own position. */
  readonly queries: Int32Array
  readonly keys: Int32Array
  /** The length of the whole sequence. */
  readonly length: number
}

/** Returns one factor for each probability: 0 to drop the probability, else 1 / (1 - rate). */
export type ProbabilityMask = (of: Probabilities) => Tensor

/**
 * Returns the dropout mask for attention probabilities in the current pass; undefined if the pass
 * drops nothing. Every layout drops the same probabilities.
 *
 * @param firstHead - the index of the rank's first head
 * @throws ERR_TSR_ARGUMENT when a recorded pass has no step number; see `inPass`
 */
export function probabilityMask(
  options: Required<DropoutOptions>,
  firstHead: number,
): ProbabilityMask | undefined {
  const pass = droppingPass(options)
  if (pass === undefined) return undefined
  return ({ shape, queries, keys, length }) => {
    const [batch, heads] = shape
    const mask = new Float32Array(batch * heads * queries.length * keys.length)
    let at = 0
    for (let row = 0; row < batch; row++) {
      const draw = drawsOf(options, pass, row)
      for (let head = firstHead; head < firstHead + heads; head++) {
        for (const query of queries) {
          const start = (head * length + query) * length
          for (const key of keys) mask[at++] = key > query ? 0 : draw(start + key)
        }
      }
    }
    return scopedTensorFrom(mask, [...shape])
  }
}

function droppingPass({ name, rate }: Required<DropoutOptions>): Pass | undefined {
  if (rate === 0) return undefined
  const pass = currentPass()
  if (pass === undefined && isTapeActive()) {
    throw argumentError(
      `the pass of the dropout ${name}`,
      'recorded outside of inPass',
      'the step of a trainer, with the dropout among the children of its module or usesPass: true; or inPass({ training: true, step }, () => recordModule(...))',
    )
  }
  return pass?.training === true ? pass : undefined
}

/** Returns a function that draws the factor for each value of an input row: 0, or 1 / (1 - rate). */
function drawsOf(
  { name, rate, seed }: Required<DropoutOptions>,
  { step, row: firstRow = 0 }: Pass,
  row: number,
): (counter: number) => number {
  const hash = counterHash(`${name}:${step}:${firstRow + row}`, seed)
  const [limit, keep] = [rate * 2 ** 32, 1 / (1 - rate)]
  return (counter) => (hash(counter) >= limit ? keep : 0)
}
