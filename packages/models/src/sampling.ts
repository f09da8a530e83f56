import { argumentError } from '@tsrun/core'
import { type Generator, uniform } from '@tsrun/training'

export interface SamplingOptions {
  /** The temperature by which scores are divided; 0 takes the token with the highest score. */
  readonly temperature: number
  /** Draws only from this number of the most likely tokens; undefined: from all tokens. */
  readonly topK: number | undefined
  /** Draws only from the most likely tokens whose probabilities add up to this. */
  readonly topP: number
}

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
  { temperature, topK, topP }: SamplingOptions,
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
