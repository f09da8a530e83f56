// The lecture's programs, tensor parallel, questions 2 and 3: a gradient without its sum, and rows.
//
//   npx tsx examples/solutions/lecture-columns.ts
//
// One process computes the columns, or the rows, of two ranks in turn. There are two layers without an
// activation. The gradient of the first output x1 = x W0 follows from d, the gradient of the second output:
//
//   dx1 = d transpose(W1) = the sum over the ranks of d[:, own] transpose(W1[:, own])

import { loadBackend, tf, type Tensor } from '@tsrun/training'
import { inputs, weights } from '../lecture/mlp.ts'
import { prove } from '../lib/prove.ts'

const [ROWS, WIDTH, RANKS] = [8, 16, 2]
const OWN = WIDTH / RANKS

await loadBackend()
const x = inputs(ROWS, WIDTH)
const weight = weights(1, WIDTH)
const d = inputs(ROWS, WIDTH)

const columns = (whole: Tensor, rank: number): Tensor =>
  tf.slice(whole, [0, rank * OWN], [whole.shape[0], OWN])
const rows = (whole: Tensor, rank: number): Tensor =>
  tf.slice(whole, [rank * OWN, 0], [OWN, whole.shape[1]!])
const ranks = Array.from({ length: RANKS }, (_, rank) => rank)

function difference(a: Tensor, b: Tensor): number {
  return tf.max(tf.abs(tf.sub(a, b))).dataSync()[0]!
}

// Columns: each rank's gradient of its input has only the terms of its own columns.
const parts = ranks.map((rank) => tf.matMul(columns(d, rank), columns(weight, rank), false, true))
const whole = tf.matMul(d, weight, false, true)
// A reduce-scatter sums before it cuts.
const summed = parts.reduce((sum, part) => tf.add(sum, part))
const own = difference(columns(parts[0]!, 0), columns(whole, 0))
const right = difference(columns(summed, 0), columns(whole, 0))
console.log(`own columns of the rank's own gradient: wrong by ${own.toFixed(2)}`)
console.log(`own columns of the summed gradient: wrong by ${right.toExponential(0)}`)
prove('both have the same shape', parts[0]!.shape.join() === whole.shape.join())
prove('only the sum is the gradient', own > 0.1 && right < 1e-5)

// Rows: each rank needs only its columns of the input, and the outputs are summed.
const products = ranks.map((rank) => tf.matMul(columns(x, rank), rows(weight, rank)))
const output = products.reduce((sum, product) => tf.add(sum, product))
const split = difference(output, tf.matMul(x, weight))
prove('split by rows, the outputs are a sum over the ranks', split < 1e-5)
