// The lecture's programs, pipeline, question 3: less memory for more work.
//
//   npx tsx examples/solutions/lecture-recompute.ts
//
// The program keeps the recordings of all micro-batches from their forward to their backward passes. Each
// holds the results of all operations. Here only the inputs are kept, and a backward pass first runs the
// forward pass of its micro-batch again.

import { loadBackend, record, sumInto, tf, type Recording, type Tensor } from '@tsrun/training'
import { inputs, layer, meanSquare, parameter, weights } from '../lecture/mlp.ts'
import { prove } from '../lib/prove.ts'

const [ROWS, WIDTH, LAYERS, MICROBATCHES] = [128, 64, 4, 4]
const rows = ROWS / MICROBATCHES

await loadBackend()
const data = inputs(ROWS, WIDTH)
const parts = Array.from({ length: MICROBATCHES }, (_, m) => tf.slice(data, [m * rows, 0], [rows]))
const params = Array.from({ length: LAYERS }, (_, i) => parameter(i, weights(i, WIDTH)))
const one = tf.scalar(1)

/** The share of a micro-batch in the loss. */
function lossOf(x: Tensor): Tensor {
  const y = params.reduce((h, { value }) => layer(h, value), x)
  return tf.div(meanSquare(y), MICROBATCHES)
}

const forward = (part: Tensor): Recording =>
  record(lossOf, part, params, { needsInputGradient: false })

/** All forward passes, then all backward passes, as in GPipe. */
function train(recomputes: boolean): { gradients: Map<string, Tensor>; bytes: number } {
  const gradients = new Map<string, Tensor>()
  const before = tf.memory().numBytes
  const kept = parts.map((part) => {
    if (!recomputes) return forward(part)
    tf.tidy(() => lossOf(part)).dispose()
    return undefined
  })
  const bytes = tf.memory().numBytes - before
  for (const [m, part] of parts.entries()) {
    const recording = kept[m] ?? forward(part)
    recording.backward(one, sumInto(gradients))
    recording.dispose()
  }
  return { gradients, bytes }
}

const [stored, again] = [train(false), train(true)]
const kibibytes = ({ bytes }: typeof stored): string => `${(bytes / 1024).toFixed(0)} KiB`
console.log(
  `kept for the backward passes: ${kibibytes(stored)}; with recomputation: ${kibibytes(again)}`,
)
const isSame = [...stored.gradients].every(([name, gradient]) => {
  const other = again.gradients.get(name)!.dataSync()
  return gradient.dataSync().every((value, i) => value === other[i])
})
prove('both give the same gradients, to the last bit', isSame)
prove('with recomputation, only the inputs are kept', again.bytes === 0 && stored.bytes > 0)
