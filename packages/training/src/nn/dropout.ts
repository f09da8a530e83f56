import { declareOptions, number, tsrError, where, type Rules } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { isTapeActive } from '../autograd/tape.ts'
import { scopedTensorFrom } from '../backend/host-memory.ts'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { currentPass } from '../model/pass.ts'
import { counterHash } from '../random/generator.ts'
import { tf } from '../tfjs/tfjs.ts'

export interface DropoutOptions {
  /** Dropouts with different names drop different values. */
  readonly name: string
  /** The probability that a value is dropped, at least 0 and less than 1; default 0.5. */
  readonly rate?: number
  /** What is dropped depends only on it, the name, the step, and the place in the batch; default 0. */
  readonly seed?: number
}

const readOptions = declareOptions({
  name: where<string>((value) => typeof value === 'string', 'a name for its random values'),
  rate: where<number>(
    (value) => typeof value === 'number' && value >= 0 && value < 1,
    'at least 0 and less than 1',
  ).default(0.5),
  seed: number().default(0),
} satisfies Rules<DropoutOptions>)

/**
 * In training, sets values to zero at random, and divides the others by 1 - rate (Srivastava et al.,
 * 2014). Otherwise it changes nothing.
 *
 * The values that it drops are the same in every layout, and when a pass is recomputed: they depend on
 * the name, the step and the place in the batch, which it learns from the pass; see `inPass`. Ranks that
 * share layers by tensor parallelism must see all values of a row.
 */
export class Dropout implements Module {
  readonly parameters: readonly Parameter[] = []
  readonly #name: string
  readonly #rate: number
  readonly #seed: number

  constructor(options: DropoutOptions) {
    const { name, rate, seed } = readOptions(options)
    this.#name = name
    this.#rate = rate
    this.#seed = seed
  }

  /**
   * @param x - [batch, ...]
   * @throws ERR_TSR_ARGUMENT in a recorded pass whose step is unknown
   */
  forward(x: Tensor): Tensor {
    const pass = currentPass()
    if (pass === undefined && isTapeActive()) throw unknownStep(this.#name)
    if (pass?.training !== true || this.#rate === 0) return x
    return tf.tidy(() => tf.mul(x, this.#mask(x.shape, pass.step, pass.row ?? 0)))
  }

  /** 0 with the probability of the rate, else 1 / (1 - rate). */
  #mask(shape: readonly number[], step: number, firstRow: number): Tensor {
    const [rows = 1, ...rest] = shape
    const width = rest.reduce((product, length) => product * length, 1)
    const keep = 1 / (1 - this.#rate)
    const limit = this.#rate * 2 ** 32
    const mask = new Float32Array(rows * width)
    for (let row = 0; row < rows; row++) {
      const hash = counterHash(
        `${this.#name}:${String(step)}:${String(firstRow + row)}`,
        this.#seed,
      )
      const start = row * width
      for (let i = 0; i < width; i++) if (hash(i) >= limit) mask[start + i] = keep
    }
    return scopedTensorFrom(mask, shape)
  }
}

function unknownStep(name: string): Error {
  return tsrError('ERR_TSR_ARGUMENT', {
    name: `the pass of the dropout ${name}`,
    value: 'recorded outside of inPass',
    expected: 'inPass({ training: true, step }, () => recordModule(...)), or the step of a trainer',
  })
}
