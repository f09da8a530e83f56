// GPT, question 3: what each kind of parallelism sends.
//
//   npx tsx examples/solutions/gpt-traffic.ts
//
// For two ranks and one step, in numbers that a rank sends:
//
//   data parallel      the gradients: an all-reduce of all parameters
//   pipeline           an activation or a gradient of [tokens, width] at the cut
//   tensor parallel    four all-reduces of [tokens, width] in each layer: after attention and feed-forward,
//                      in the forward and in the backward pass
//
// An all-reduce on two ranks sends as many numbers as it sums.

import { gpt } from '@tsrun/models'
import { loadBackend } from '@tsrun/training'
import { prove } from '../lib/prove.ts'

const [LAYERS, BLOCK] = [4, 64]
await loadBackend()

function numbersSent(width: number, batch: number): { dp: number; pp: number; tp: number } {
  const model = gpt({ layers: LAYERS, heads: 4, width, block: BLOCK }).build()
  const dp = model.parameters.reduce((sum, { value }) => sum + value.size, 0)
  const activation = batch * BLOCK * width
  for (const { value } of model.parameters) value.dispose()
  return { dp, pp: activation, tp: 4 * LAYERS * activation }
}

function show(width: number, batch: number): ReturnType<typeof numbersSent> {
  const sent = numbersSent(width, batch)
  const [dp, pp, tp] = Object.values(sent).map((numbers) => (numbers / 1e6).toFixed(2))
  console.log(`width ${width}, batch ${batch}: dp ${dp!}, pp ${pp!}, tp ${tp!} million numbers`)
  return sent
}

const usual = show(64, 8)
const wide = show(256, 8)
const large = show(64, 64)
prove('the batch does not change what data parallel ranks send', large.dp === usual.dp)
prove(
  'eight times the batch sends eight times the activations',
  large.pp === 8 * usual.pp && large.tp === 8 * usual.tp,
)
prove('four times the width sends four times the activations', wide.tp === 4 * usual.tp)
prove('four times the width sends more than twelve times the gradients', wide.dp > 12 * usual.dp)
