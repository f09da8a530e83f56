import { argumentError, count, declareOptions, filled, finite, type Rules } from '@tsrun/core'
import { withGradients } from '../autograd/tape.ts'
import { currentBackend, isHostAccessible } from '../backend/current.ts'
import { scopedTensor, viewOf } from '../backend/host-memory.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { causalAttention, type AttentionCore } from './causal-attention.ts'
import { dropoutRate, probabilityMask, type DropoutOptions } from './dropout.ts'
import { JointLinear, Linear } from './linear.ts'
import { areRepeatable, ofKind, parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'

/** Options of `CausalSelfAttention`. */
export interface AttentionOptions {
  /** The prefix of the names of the parameters: `<name>.c_attn.weight` and so on. */
  readonly name: string
  readonly width: number
  /** The number of heads, a divisor of the width. */
  readonly heads: number
  readonly seed?: number
  /** The standard deviation of the initial weights; default 0.02. */
  readonly deviation?: number
  /**
   * The standard deviation of the initial weights of `c_proj`, whose output is added to the
   * residual stream; default `deviation`.
   */
  readonly outputDeviation?: number
  /** The dropout rate of the attention probabilities during training; default 0. */
  readonly attentionDropout?: number
}

const readOptions = declareOptions({
  name: filled('the prefix of the names of its parameters, as in h.0.attn'),
  width: count({ from: 1 }),
  heads: count({ from: 1 }),
  seed: finite().default(0),
  deviation: finite().default(0.02),
  outputDeviation: finite().optional(),
  attentionDropout: dropoutRate.default(0),
} satisfies Rules<AttentionOptions>)

/**
 * Multi-head causal self-attention with the parameter names of GPT-2. `c_attn` computes queries,
 * keys and values; `c_proj` computes the output.
 */
export class CausalSelfAttention implements Module {
  readonly kind = 'attention'
  readonly children: Record<'c_attn' | 'c_proj', Module>
  /**
   * The attention function. Context parallelism, which divides sequences among ranks, replaces the
   * default.
   */
  core: AttentionCore = causalAttention
  readonly usesPass: boolean
  readonly #headSize: number
  readonly #dropout: Required<DropoutOptions>

  constructor(options: AttentionOptions) {
    const {
      name,
      width,
      heads,
      seed,
      deviation,
      outputDeviation = deviation,
      attentionDropout: rate,
    } = readOptions(options)
    checkHeads(width, heads)
    this.#headSize = width / heads
    this.#dropout = { name: `${name}.attn_dropout`, rate, seed }
    this.usesPass = rate > 0
    this.children = {
      c_attn: new JointLinear({
        name: `${name}.c_attn`,
        inputs: width,
        parts: 3,
        outputs: width,
        grain: this.#headSize,
        seed,
        deviation,
      }),
      c_proj: new Linear({
        name: `${name}.c_proj`,
        inputs: width,
        outputs: width,
        seed,
        deviation: outputDeviation,
      }),
    }
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  isRepeatable(): boolean {
    const isPlain = this.core === causalAttention && !this.usesPass
    return isPlain && areRepeatable(Object.values(this.children))
  }

  /** @param x - [batch, length, width] */
  forward(x: Tensor): Tensor {
    const { c_attn: joint, c_proj: back } = this.children
    const { core } = this
    const size = this.#headSize
    const firstHead = (joint.parameters[0]?.shard?.offset ?? 0) / size
    const mask = probabilityMask(this.#dropout, firstHead)
    const isPlain = core === causalAttention && mask === undefined
    const pass = isPlain ? currentBackend().attention : undefined
    const attended = withGradients([joint.forward(x)], (rows) => {
      if (pass !== undefined) return pass(rows, size)
      const [q, k, v] = splitHeads(rows, 3, size) as [Tensor, Tensor, Tensor]
      const { output, saved } = core.forward(q, k, v, mask)
      return {
        value: joinHeads([output]),
        saved,
        gradients(dy, tensors) {
          const [gradient] = splitHeads(dy, 1, size) as [Tensor]
          return [joinHeads(core.backward(gradient, tensors, mask))]
        },
      }
    })
    return back.forward(attended)
  }
}

/** Whether a module is an attention whose heads tensor parallelism has not divided. */
export const isAttention = ofKind<CausalSelfAttention>('attention')

/** @throws ERR_TSR_ARGUMENT unless the heads divide the width */
export function checkHeads(width: number, heads: number): void {
  if (width % heads === 0) return
  throw argumentError('width', width, `a multiple of the ${heads} heads`)
}

/** Splits [batch, length, parts x heads x size] into one [batch, heads, length, size] for each part. */
function splitHeads(rows: Tensor, parts: number, size: number): Tensor[] {
  const [batch, length, channels] = rows.shape as [number, number, number]
  const heads = channels / parts / size
  if (!isHostAccessible()) {
    const split = tf.reshape(rows, [batch, length, parts, heads, size])
    return tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
  }
  const shape: HeadsShape = [batch, heads, length, size]
  return Array.from({ length: parts }, (_, part) =>
    scopedTensor(shape, (out) => {
      const from = viewOf(rows)
      eachRun(shape, parts, part, (inRows, inHeads) => {
        for (let i = 0; i < size; i++) out[inHeads + i] = from[inRows + i]!
      })
    }),
  )
}

/** Inverts `splitHeads`. */
function joinHeads(all: readonly Tensor[]): Tensor {
  const parts = all.length
  const headsShape = all[0]!.shape as HeadsShape
  const [batch, heads, length, size] = headsShape
  const shape = [batch, length, parts * heads * size]
  if (!isHostAccessible()) {
    return tf.reshape(tf.transpose(tf.stack([...all]), [1, 3, 0, 2, 4]), shape)
  }
  return scopedTensor(shape, (out) => {
    all.forEach((each, part) => {
      const from = viewOf(each)
      eachRun(headsShape, parts, part, (inRows, inHeads) => {
        for (let i = 0; i < size; i++) out[inRows + i] = from[inHeads + i]!
      })
    })
  })
}

type HeadsShape = [batch: number, heads: number, length: number, size: number]

/** For each head at each position, calls `visit` with the index of the first value in both layouts. */
function eachRun(
  [batch, heads, length, size]: HeadsShape,
  parts: number,
  part: number,
  visit: (inRows: number, inHeads: number) => void,
): void {
  for (let b = 0; b < batch; b++) {
    for (let head = 0; head < heads; head++) {
      for (let at = 0; at < length; at++) {
        const inRows = (((b * length + at) * parts + part) * heads + head) * size
        visit(inRows, ((b * heads + head) * length + at) * size)
      }
    }
  }
}
