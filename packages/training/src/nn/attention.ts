import { argumentError, count, declareOptions, filled, finite, type Rules } from '@tsrun/core'
import { isTapeNested, withGradients } from '../autograd/tape.ts'
import { currentBackend, isHostAccessible } from '../backend/current.ts'
import { scopedTensor, viewOf } from '../backend/host-memory.ts'
import type { Differentiable } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import {
  dropoutRate,
  probabilityMask,
  type DropoutOptions,
  type Probabilities,
  type ProbabilityMask,
} from './dropout.ts'
import { inOrder } from './embedding.ts'
import { JointLinear, Linear } from './linear.ts'
import { areRepeatable, ofKind, operationsOf, parametersOf, type Module } from '../model/module.ts'
import { joinedOperations, type Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'

/** The initial weights of a part of a transformer block. */
export interface BranchOptions {
  readonly width: number
  readonly seed?: number
  /** The standard deviation of the initial weights; default 0.02. */
  readonly deviation?: number
  /**
   * The standard deviation of the initial weights of `c_proj`, whose output is added to the
   * residual stream; default `deviation`.
   */
  readonly outputDeviation?: number
}

/** Validation rules for `BranchOptions`. */
export const branchRules = {
  width: count({ from: 1 }),
  seed: finite().default(0),
  deviation: finite().default(0.02),
  outputDeviation: finite().optional(),
} satisfies Rules<BranchOptions>

/** Options of `CausalSelfAttention`. */
export interface AttentionOptions extends BranchOptions {
  /** The prefix of the names of the parameters: `<name>.c_attn.weight` and so on. */
  readonly name: string
  /** The number of heads, a divisor of the width. */
  readonly heads: number
  /** The dropout rate of the attention probabilities during training; default 0. */
  readonly attentionDropout?: number
}

const readOptions = declareOptions({
  ...branchRules,
  name: filled('the prefix of the names of its parameters, as in h.0.attn'),
  heads: count({ from: 1 }),
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
  readonly #attention: readonly Operation[]
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
    this.#attention = [{ type: 'attention', size: this.#headSize }]
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

  get #isPlain(): boolean {
    return this.core === causalAttention && !this.usesPass
  }

  isRepeatable(): boolean {
    return this.#isPlain && areRepeatable(Object.values(this.children))
  }

  operations(): readonly Operation[] | undefined {
    if (!this.#isPlain) return undefined
    const { c_attn: joint, c_proj: back } = this.children
    return joinedOperations([operationsOf(joint), this.#attention, operationsOf(back)])
  }

  /** @param x - [batch, length, width] */
  forward(x: Tensor): Tensor {
    const { c_attn: joint, c_proj: back } = this.children
    const { core } = this
    const size = this.#headSize
    const scale = 1 / Math.sqrt(size)
    const firstHead = (joint.parameters[0]?.shard?.offset ?? 0) / size
    const mask = probabilityMask(this.#dropout, firstHead)
    const fused = core === causalAttention ? currentBackend().attention : core.fused
    const onHost = isOnHost()
    const pass = mask === undefined && !isTapeNested() ? fused : undefined
    const attended = withGradients([joint.forward(x)], (rows) => {
      if (pass !== undefined) return pass(rows, size)
      const [q, k, v] = splitHeads(rows, 3, size, onHost) as [Tensor, Tensor, Tensor]
      const { output, saved } = core.forward(tf.mul(q, scale), k, v, mask)
      return {
        value: joinHeads([output]),
        saved,
        gradients(dy, tensors) {
          const [gradient] = splitHeads(dy, 1, size, onHost) as [Tensor]
          const [dq, dk, dv] = core.backward(gradient, tensors, mask)
          return [joinHeads([tf.mul(dq, scale), dk, dv])]
        },
      }
    })
    return back.forward(attended)
  }
}

/** Whether a module is a `CausalSelfAttention`, by its `kind`. */
export const isAttention = ofKind<CausalSelfAttention>('attention')

/** @throws ERR_TSR_ARGUMENT unless the width is a multiple of the number of heads */
export function checkHeads(width: number, heads: number): void {
  if (width % heads === 0) return
  throw argumentError('width', width, `a multiple of the ${heads} heads`)
}

/** Whether to compute on the host, outside of the tape. Gradients of gradients need the tape. */
const isOnHost = () => isHostAccessible() && !isTapeNested()

/** Splits [batch, length, parts x heads x size] into one [batch, heads, length, size] for each part. */
function splitHeads(rows: Tensor, parts: number, size: number, onHost: boolean): Tensor[] {
  const [batch, length, channels] = rows.shape as [number, number, number]
  const heads = channels / parts / size
  if (!onHost) {
    const split = tf.reshape(rows, [batch, length, parts, heads, size])
    const each = tf.transpose(split, [2, 0, 3, 1, 4])
    // The gradient of tf.unstack fails for one tensor.
    return parts === 1 ? [tf.squeeze(each, [0])] : tf.unstack(each)
  }
  return Array.from({ length: parts }, (_, part) =>
    scopedTensor([batch, heads, length, size], (out) => {
      const from = viewOf(rows)
      let next = 0
      for (let b = 0; b < batch; b++) {
        for (let head = 0; head < heads; head++) {
          for (let at = 0; at < length; at++) {
            const start = (((b * length + at) * parts + part) * heads + head) * size
            for (let i = 0; i < size; i++) out[next++] = from[start + i]!
          }
        }
      }
    }),
  )
}

/** The inverse of `splitHeads`. */
function joinHeads(all: readonly Tensor[]): Tensor {
  const [batch, heads, length, size] = all[0]!.shape as [number, number, number, number]
  const rows = tf.transpose(tf.concat([...all], 1), [0, 2, 1, 3])
  return tf.reshape(rows, [batch, length, all.length * heads * size])
}

/**
 * An attention function of queries, keys and values [batch, heads, length, size], with its gradients.
 * The queries are already divided by sqrt(size). The open tf.tidy or recorded pass owns the results.
 */
export interface AttentionCore {
  /** Whether each rank of a group holds only a part of the positions of a sequence. */
  readonly dividesSequences?: boolean

  /**
   * Computes attention without dropout in one pass, instead of `forward` and `backward`. Optional.
   *
   * @param rows - [batch, length, 3 x heads x size]: the queries, keys and values of all heads
   * @returns the output [batch, length, heads x size]
   */
  readonly fused?: ((rows: Tensor, size: number) => Differentiable) | undefined

  /**
   * @param mask - dropout factors for the probabilities; default: no dropout
   * @returns the output, of the same shape, and the tensors that `backward` needs
   */
  forward(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask?: ProbabilityMask,
  ): { output: Tensor; saved: Tensor[] }

  /** Returns the gradients of the queries, keys and values. */
  backward(
    dy: Tensor,
    saved: readonly Tensor[],
    mask?: ProbabilityMask,
  ): readonly [Tensor, Tensor, Tensor]
}

/**
 * softmax(q k') v, where each position attends to itself and to earlier positions (Vaswani et al., 2017).
 * The backward pass reuses the probabilities [batch, heads, length, length].
 */
export const causalAttention: AttentionCore = {
  forward(q, k, v, mask) {
    const { probabilities } = attend(q, k, 'causal')
    const kept = mask?.(probabilitiesOf(probabilities))
    const output = tf.matMul(times(probabilities, kept), v)
    const saved = [q, k, v, probabilities, output, ...(kept === undefined ? [] : [kept])]
    return { output, saved }
  },
  backward(dy, saved) {
    const [q, k, v, probabilities, output] = saved as [Tensor, Tensor, Tensor, Tensor, Tensor]
    const kept = saved[5]
    const products = tf.sum(tf.mul(dy, output), -1, true)
    const dProbabilities = times(tf.matMul(dy, v, false, true), kept)
    const dScores = tf.mul(probabilities, tf.sub(dProbabilities, products))
    return [
      tf.matMul(dScores, k),
      tf.matMul(dScores, q, true, false),
      tf.matMul(times(probabilities, kept), dy, true, false),
    ]
  },
}

/** Applies a dropout mask to probabilities or to their gradients. */
export function times(x: Tensor, kept: Tensor | undefined): Tensor {
  return kept === undefined ? x : tf.mul(x, kept)
}

function probabilitiesOf({ shape }: Tensor): Probabilities {
  const [, , length] = shape as Probabilities['shape']
  const positions = inOrder(length)
  return { shape: shape as Probabilities['shape'], queries: positions, keys: positions, length }
}

/** `causal`: query i attends to the keys 0 .. i. `full`: each query attends to all keys. */
export type Mask = 'causal' | 'full'

/**
 * Returns softmax(q k') under the mask: the probabilities [batch, heads, queries, keys], whose rows
 * sum to 1, and log(sum(exp(scores))) of each row [batch, heads, queries, 1].
 */
export function attend(q: Tensor, k: Tensor, mask: Mask) {
  const scores = scoresOf(q, k, mask)
  const largest = tf.max(scores, -1, true)
  // Avoid tf.softmax: within TensorFlow functions, oneDNN computes it and rounds differently.
  const powers = tf.exp(tf.sub(scores, largest))
  const total = tf.sum(powers, -1, true)
  return {
    probabilities: tf.div(powers, total),
    logSums: () => tf.add(largest, tf.log(total)),
  }
}

/** Recomputes attention probabilities from the `logSums` of their rows. */
export function attendAgain(q: Tensor, k: Tensor, mask: Mask, logSums: Tensor): Tensor {
  return tf.exp(tf.sub(scoresOf(q, k, mask), logSums))
}

/** The score of a masked key: far below all real scores, but finite, so that differences are not NaN. */
export const MASKED = -1e30

/** Returns q k'. Keys that a query does not attend to get a score whose probability is 0. */
function scoresOf(q: Tensor, k: Tensor, mask: Mask): Tensor {
  const scores = tf.matMul(q, k, false, true)
  // TensorFlow.js cannot broadcast a mask to an empty batch.
  if (mask === 'full' || scores.size === 0) return scores
  const length = scores.shape[2]!
  if (!isOnHost()) {
    const keys = tf.range(0, length)
    return tf.where(tf.lessEqual(keys, tf.reshape(keys, [length, 1])), scores, MASKED)
  }
  return scopedTensor(scores.shape, (out) => {
    out.set(viewOf(scores))
    scores.dispose()
    for (let row = 0; row * length < out.length; row++) {
      out.fill(-Infinity, row * length + (row % length) + 1, (row + 1) * length)
    }
  })
}
