import {
  anything,
  argumentError,
  count,
  declareOptions,
  finite,
  flag,
  shown,
  where,
  type Rules,
} from '@tsrun/core'
import { type Generator, generator, type Module, type Tensor, tf, uniform } from '@tsrun/training'
import { describe, runForward } from '@tsrun/training/parts'
import { isGPT } from './gpt.ts'
import { scoresAt, startGeneration } from './generation-pass.ts'

/** Options of `generate`. */
export interface GenerateOptions {
  /** The largest number of tokens to generate; default 100. */
  readonly maxTokens?: number
  /**
   * The temperature by which scores are divided. Below 1, likely tokens become more likely; 0
   * always takes the most likely token (greedy). Default 1.
   */
  readonly temperature?: number
  /** Draws only from this number of the most likely tokens; default: all tokens. */
  readonly topK?: number
  /**
   * Draws only from the most likely tokens whose probabilities add up to this value; default 1: all
   * tokens.
   */
  readonly topP?: number
  /**
   * The random seed; default 0. Tokens depend only on the seed, the prompt, the model and these options. On
   * tensorflow, rounding can change a token if another token is almost as likely.
   */
  readonly seed?: number
  /** Tokens at which the text ends. The result does not contain them. */
  readonly stop?: readonly number[]
  /**
   * Whether attention caches the keys and values of earlier positions; default: true for a `GPT`, otherwise
   * false. With a cache, generating a token takes the time of one position. The tokens are the same. Enable
   * it for another model only if no layer except `CausalSelfAttention` combines positions, and no layer
   * except `PositionEmbedding` uses their indices.
   */
  readonly cache?: boolean
  /** The largest number of input tokens; default and maximum: the positions of the model. */
  readonly block?: number
  /** Called with each token as soon as it has been drawn, for example to print it. */
  readonly onToken?: (token: number) => void
}

const readOptions = declareOptions({
  maxTokens: count().default(100),
  temperature: finite({ from: 0 }).default(1),
  topK: count({ from: 1 }).optional(),
  topP: finite({ above: 0, to: 1 }).default(1),
  seed: finite().default(0),
  stop: where<readonly number[]>(Array.isArray, 'a list of tokens').default([]),
  cache: flag.optional(),
  block: count({ from: 1 }).optional(),
  onToken: anything<(token: number) => void>(),
} satisfies Rules<GenerateOptions>)

/** A rank's part of a pipeline, the result of `pipeline()`. */
interface Stages {
  readonly modules: readonly Module[]
  readonly whole?: Module | undefined
  infer<T>(inputs: Tensor, read: (outputs: Tensor) => Promise<T>): Promise<T>
}

/** A replica of a model. Its parameters may be sharded between steps. */
interface Wrapper {
  readonly module: object
  gather?(): Promise<void>
  release?(): void
}

interface Trained {
  readonly state: { readonly model: object }
}

/**
 * A model that can generate: a module, a `pipeline()`, the result of `dataParallel()` or
 * `fullyShard()` for one of these, or a `trainer()`.
 */
export type Generative = Module | Stages | Wrapper | Trained

/**
 * Generates the tokens that follow a prompt, one at a time. The model may be divided among ranks in any
 * way in which it can be trained. Ranks that hold parts of one model must call it with the same prompt
 * and options, and get the same tokens: pipeline stages, tensor and context parallel ranks, and the ranks
 * of ZeRO stage 3. Replicas may have different prompts.
 *
 * When the text reaches the model's `block` length, the oldest half of the context is dropped.
 *
 * @param tokens - the prompt, at least one token
 * @returns the new tokens, without the prompt
 *
 * @example
 * const model = new GPT({ block: 64 })
 * const tokens = await generate(model, Buffer.from('The whale '), { maxTokens: 50, temperature: 0.8 })
 * console.log(Buffer.from(tokens).toString())
 *
 * @throws ERR_TSR_ARGUMENT for a string or an empty prompt, a token outside the model's vocabulary,
 *   an invalid or unknown option, a model whose output is not [1, length, vocabulary], or a second call
 *   for a model before the first one ends
 */
export async function generate(
  model: Generative,
  tokens: ArrayLike<number>,
  options: GenerateOptions = {},
): Promise<number[]> {
  const complete = readOptions(options)
  if (typeof tokens === 'string') {
    throw argumentError(
      'tokens',
      'a text',
      'tokens, which are numbers; see loadTokenizer().encode(text), or Buffer.from(text)',
    )
  }
  if (tokens.length === 0) {
    throw argumentError('tokens', shown(tokens), 'at least one token')
  }
  const at = Array.from(tokens).findIndex((token) => !(Number.isInteger(token) && token < 2 ** 31))
  if (at >= 0) throw argumentError(`token ${at} of the prompt`, shown(tokens[at]), 'a whole number')
  if (isTrained(model)) return await generate(model.state.model as Generative, tokens, options)
  if (isWrapper(model)) {
    const isSharded = model.gather !== undefined && !isPipeline(model.module)
    if (isSharded) await model.gather!()
    try {
      return await generate(model.module as Generative, tokens, options)
    } finally {
      if (isSharded) model.release?.()
    }
  }
  const modules = isPipeline(model) ? model.modules : [model]
  const { cache = modules.every(isGPT), maxTokens, seed, stop, onToken } = complete
  const infer = async (inputs: Tensor, read: (outputs: Tensor) => Promise<number>) => {
    if (isPipeline(model)) return await model.infer(inputs, read)
    const outputs = runForward(model, inputs)
    try {
      return await read(outputs)
    } finally {
      outputs.dispose()
    }
  }
  const next = generator('generate', seed)
  const text = Array.from(tokens)
  const { length } = text
  const pass = startGeneration(modules, cache, complete.block)
  /** @param fill - the number of padding positions at the end of the input */
  const readScores = async (outputs: Tensor, fill: number) => {
    const scores = tf.tidy(() => scoresAt(outputs, fill))
    try {
      const part = await scores.data<'float32'>()
      return (await pass.head?.wholeScores(part)) ?? part
    } finally {
      scores.dispose()
    }
  }
  const { block } = pass
  let begin = Math.max(0, length - block)
  try {
    while (text.length < length + maxTokens) {
      if (text.length - begin > block) {
        begin = text.length - Math.ceil(block / 2)
        pass.truncate(0)
      }
      const fresh = text.slice(begin + pass.length)
      const fill = (pass.multiple - (fresh.length % pass.multiple)) % pass.multiple
      const inputs = tf.tensor2d([[...fresh, ...Array<number>(fill).fill(0)]], undefined, 'int32')
      let token: number
      try {
        token = await infer(inputs, async (outputs) =>
          sampleToken(await readScores(outputs, fill), complete, next),
        )
      } finally {
        inputs.dispose()
      }
      pass.truncate(cache ? text.length - begin : 0)
      if (stop.includes(token)) break
      text.push(token)
      onToken?.(token)
    }
    return text.slice(length)
  } finally {
    pass.end()
  }
}

function isPipeline(model: unknown): model is Stages {
  const { modules, whole } = (model as Partial<Stages> | null) ?? {}
  return Array.isArray(modules) && whole === undefined
}

function isTrained(model: Generative): model is Trained {
  return 'state' in model && 'step' in model
}

function isWrapper(model: Exclude<Generative, Trained>): model is Wrapper {
  if (isPipeline(model)) return false
  if ('module' in model) return true
  if ('forward' in model) return false
  throw argumentError(
    'model',
    describe(model),
    'a model such as the result of build(), a pipeline, a replica of one, or a trainer',
  )
}

type Sampling = Pick<ReturnType<typeof readOptions>, 'temperature' | 'topK' | 'topP'>

/**
 * Draws a token from softmax(scores / temperature). Only the `topK` most likely tokens are candidates,
 * and of these only the most likely ones whose probabilities add up to `topP` (nucleus sampling; Holtzman
 * et al., 2020). Computes in double precision, so that ranks with the same scores draw the same token.
 *
 * @param scores - the score of each token
 * @throws ERR_TSR_ARGUMENT when a score is NaN, or the largest score is infinite and tokens are drawn
 */
export function sampleToken(
  scores: Float32Array,
  { temperature, topK, topP }: Sampling,
  next: Generator,
): number {
  if (scores.some(Number.isNaN)) {
    throw argumentError(
      'a score of the model',
      'NaN',
      'numbers; look for NaN in the parameters of the model',
    )
  }
  if (temperature === 0 || topK === 1) return likeliest(scores)
  const isCut = topK !== undefined || topP < 1
  // Sort tokens with equal scores by number, so that all ranks get the same order.
  const order = isCut
    ? Array.from(scores.keys()).sort((a, b) => scores[b]! - scores[a]! || a - b)
    : Array.from(scores.keys())
  const candidates = order.slice(0, topK)
  const largest = scores[isCut ? candidates[0]! : likeliest(scores)]!
  if (!Number.isFinite(largest)) {
    throw argumentError('the largest score of the model', largest, 'a finite number')
  }
  const weights = candidates.map((token) => Math.exp((scores[token]! - largest) / temperature))
  let total = weights.reduce((sum, weight) => sum + weight, 0)
  if (topP < 1) {
    let [sum, count] = [0, 0]
    while (count < weights.length && sum < topP * total) sum += weights[count++]!
    candidates.length = count
    total = sum
  }
  const at = uniform(next) * total
  let sum = 0
  for (const [i, token] of candidates.entries()) {
    sum += weights[i]!
    if (at < sum) return token
  }
  return candidates.at(-1)!
}

/** Returns the token with the highest score. If several tokens have it, the first one is returned. */
function likeliest(scores: Float32Array): number {
  let best = 0
  for (let token = 1; token < scores.length; token++)
    if (scores[token]! > scores[best]!) best = token
  return best
}
