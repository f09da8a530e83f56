// GPT, question 2: the losses of models without a network.
//
//   npx tsx examples/solutions/gpt-entropy.ts
//
// The loss is the mean of -ln p over all bytes, where p is the probability that the model gave to the byte
// that came. A model that knows nothing gives the same p to each byte of its vocabulary. A model that only
// counts gives each byte its frequency in the text, or its frequency after the previous byte.

import { mobyDick } from '@tsrun/training'
import { prove } from '../lib/prove.ts'

const { tokens, vocabulary } = mobyDick({ split: 'train' })
const unseen = mobyDick({ split: 'validation' }).tokens

/** Counts each byte, after each of `by` previous bytes. Starts each count at one, so that no p is zero. */
function count(by: number): Float64Array {
  const counts = new Float64Array(by * vocabulary).fill(1)
  for (let i = 1; i < tokens.length; i++) counts[placeOf(tokens, i, by)]! += 1
  return counts
}

function placeOf(text: ArrayLike<number>, i: number, by: number): number {
  return (by === 1 ? 0 : text[i - 1]!) * vocabulary + text[i]!
}

/** The loss on the text that was not counted. */
function lossOf(by: number): number {
  const counts = count(by)
  const sums = Array.from({ length: by }, (_, row) =>
    counts.subarray(row * vocabulary, (row + 1) * vocabulary).reduce((a, b) => a + b),
  )
  let loss = 0
  for (let i = 1; i < unseen.length; i++) {
    const place = placeOf(unseen, i, by)
    loss -= Math.log(counts[place]! / sums[Math.floor(place / vocabulary)]!)
  }
  return loss / (unseen.length - 1)
}

const nothing = Math.log(vocabulary)
const [bytes, pairs] = [lossOf(1), lossOf(vocabulary)]
console.log(`each byte equally likely: ln(${vocabulary}) = ${nothing.toFixed(2)}`)
console.log(`by the frequency of each byte: ${bytes.toFixed(2)}`)
console.log(`by its frequency after the previous byte: ${pairs.toFixed(2)}`)
prove('each model predicts better than the one before', nothing > bytes && bytes > pairs)
