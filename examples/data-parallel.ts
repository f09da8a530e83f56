// Data parallel training: every rank has the whole network and a share of each batch.
//
//   npx tsrun --nproc 4 examples/data-parallel.ts
//   npx tsrun --nproc 4 examples/data-parallel.ts --wire bfloat16 --bucket 65536
//   npx tsrun --nproc 4 examples/data-parallel.ts --overlap off
//   node --import tsx examples/data-parallel.ts        (the same script in one process)
//
// The gradients are averaged over the ranks in buckets, while the backward pass still computes those of
// earlier layers. With `--overlap off` all of them are averaged together after the backward pass. CS336's
// lecture does that one parameter at a time, as examples/lecture/data-parallel.ts does. The output shows how
// long the ranks still wait for gradients. Only the engine `worker` moves messages while a rank computes, and
// it needs a second core for each rank.
//
// Exercises: examples/exercises.md

import * as training from '@tsrun/training'
import { choice, count, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { grouped, percent, printResult } from './lib/output.ts'
import { Speed } from './lib/speed.ts'
import { describeUtilisation, pollUtilisation } from './lib/utilisation.ts'

const flags = readFlags({
  epochs: count(1),
  batch: count(256),
  images: count(60_000),
  bucket: count(256 * 1024),
  wire: choice(['float32', 'float16', 'bfloat16'] as const, 'float32'),
  seed: integer(0),
  lr: positive(0.003),
  layers: count(16),
  width: count(128),
  ...jobFlags(),
})
const { batch, epochs, seed } = flags

const group = await startJob(flags)
const model = training.shardedMLP({ layers: flags.layers, hidden: flags.width, seed })
// The only bucket of all gradients is complete when the backward pass ends.
const bucketBytes = flags.overlap !== 'off' ? flags.bucket : Number.MAX_SAFE_INTEGER
const run = await training.trainer(model, {
  mesh: group,
  optimizer: new training.Adam({ learningRate: flags.lr }),
  bucketBytes,
  firstBucketBytes: bucketBytes / 4,
  wire: flags.wire,
})
const train = training.mnist({ split: 'train' })
const steps = epochs * Math.ceil(Math.min(flags.images, train.size) / batch)
const speed = new Speed()
const poll = pollUtilisation()
await run.fit(train, { batch, seed, steps, callbacks: [speed] })
const busy = await group.allGatherObject(await poll.stop())
const test = training.mnist({ split: 'test' })
const { accuracy, loss } = await run.evaluate(
  training.batches(test, { batch: 1000, shuffle: false, share: run.share }),
)

if (run.rank === 0) {
  const { collectives, bytes } = run.traffic ?? { collectives: 0, bytes: 0 }
  const { examplesPerSecond: imagesPerSecond, exposed } = speed
  console.log(
    `test accuracy ${percent(accuracy, 2)}  ${grouped(imagesPerSecond)} images/s  ` +
      `${percent(exposed)} of the time waiting for gradients`,
  )
  console.log(describeUtilisation(busy))
  console.log(
    `${collectives} ${collectives === 1 ? 'bucket' : 'buckets'}, ${grouped(bytes)} bytes of gradients per step`,
  )
  printResult({ ranks: group.size, accuracy, loss, imagesPerSecond, exposed, collectives, bytes })
}
run.dispose()
await group.destroy()
