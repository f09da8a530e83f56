// Trains as the page of `npm run live` does, but with a process for each rank, and prints the losses that
// the page shows.
//
//   npx tsrun --nproc 4 examples/live-page.ts
//   npx tsrun --nproc 3 examples/live-page.ts --schedule interleaved --microbatches 5
//
// The page shows the command for its settings. The losses are equal to the last bit: in processes, in one
// thread of a page, and in workers.

import { loadBackend, mnist } from '@tsrun/training'
import { choice, count, join, joinFlags, readFlags } from './lib/flags.ts'
import { lessons, trainRank, type Digits, type LessonName } from './live/training.ts'

const flags = readFlags({
  schedule: choice(Object.keys(lessons) as LessonName[], '1f1b'),
  microbatches: count(8),
  steps: count(20),
  ...joinFlags('auto'),
})

/** The first images of a set, as bytes. */
function digitsOf(split: 'train' | 'test', size: number): Digits {
  const images = mnist({ split })
  const indices = Int32Array.from({ length: size }, (_, index) => index)
  const inputs = new Float32Array(size * 784)
  const labels = new Int32Array(size)
  images.fields.inputs.read(indices, inputs)
  images.fields.labels.read(indices, labels)
  // The inputs are (p / 255 - 0.1307) / 0.3081, where p is a byte.
  const pixels = Uint8Array.from(inputs, (input) => Math.round((input * 0.3081 + 0.1307) * 255))
  return { pixels, labels: Uint8Array.from(labels) }
}

const group = await join(flags)
await loadBackend('wasm', { math: 'exact' })
const layout = { lesson: flags.schedule, ranks: group.size, microbatches: flags.microbatches }
const sets = { training: digitsOf('train', 1024), test: digitsOf('test', 64) }
await trainRank(group, layout, sets, ({ step, loss }) => {
  console.log(`step ${step}: loss ${loss}`)
  return Promise.resolve(step < flags.steps)
})
await group.destroy()
