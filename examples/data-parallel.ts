// Data parallel training: every rank has the whole network and a share of each batch.
//
//   npx tsrun --nproc auto examples/data-parallel.ts
//   npx tsrun --nproc auto examples/data-parallel.ts --batch 256 --epochs 1
//   npx tsrun --nproc auto examples/data-parallel.ts --wire bfloat16 --bucket 65536
//   npx tsrun --nproc auto examples/data-parallel.ts --overlap off
//   npx tsrun --nproc auto examples/data-parallel.ts --overlap on --transport tcp
//   node --import tsx examples/data-parallel.ts        (the same script in one process)
//
// Compare the images/s with those of `--nproc 1`. In each step, a rank computes on its share of the batch
// and sends gradients of the size of the network, however large the batch is. So the batch determines how
// much of a step is computation: with 2048 images, two ranks on two cores are at least 1.5 times as fast as
// one. Smaller batches gain less. But larger batches make fewer steps, so they need more epochs.
//
// The gradients are averaged over the ranks in buckets. A bucket can be averaged while the backward pass
// still computes the gradients of earlier layers. But something has to move the data meanwhile: the engine
// `worker`, which needs a second core for each rank. Ranks that share memory and have no such core average
// all buckets after the backward pass, because that is faster. The output says which of the two happened,
// and how long the ranks waited for gradients.
//
// `--overlap on` takes the engine `worker`. Over TCP, buckets are then sent during the backward pass on any
// machine. `--overlap off` averages all gradients in one bucket after it. CS336's lecture does that one
// parameter at a time, as examples/lecture/data-parallel.ts does.
//
// Read: docs/data-parallel.md. Exercises: examples/exercises.md#data-parallel

import * as training from '@tsrun/training'
import { choice, count, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { grouped, percent, printResult, wrap } from './lib/output.ts'
import { Speed } from './lib/speed.ts'
import { describeUtilisation, pollUtilisation } from './lib/utilisation.ts'

const flags = readFlags({
  epochs: count(2),
  batch: count(2048),
  images: count(60_000),
  bucket: count(256 * 1024),
  wire: choice(['float32', 'float16', 'bfloat16'] as const, 'float32'),
  seed: integer(0),
  lr: positive(0.001),
  layers: count(16),
  width: count(256),
  ...jobFlags(),
})
const { batch, epochs, seed } = flags

const group = await startJob(flags)
// Buckets prefer the same as this operation: to wait until the ranks have nothing else to do, or not.
const probe = group.allReduceInit(group.alloc(flags.wire, 1))
const isDeferred = probe.prefersRun
probe.free()
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
  console.log(`test accuracy ${percent(accuracy, 2)}  ${grouped(imagesPerSecond)} images/s`)
  console.log(`${percent(exposed)} of the time waiting for gradients`)
  console.log(describeUtilisation(busy))
  console.log(`${grouped(batch / group.size)} images for each rank in a step`)
  console.log(
    `${collectives} ${collectives === 1 ? 'bucket' : 'buckets'}, ${grouped(bytes)} bytes of gradients per step`,
  )
  const during = collectives > 0 && flags.overlap !== 'off' && !isDeferred
  if (collectives > 0) console.log(wrap(describeExchange(during)))
  const figures = { accuracy, loss, imagesPerSecond, exposed, collectives, bytes, during }
  printResult({ ranks: group.size, ...figures })
}
run.dispose()
await group.destroy()

function describeExchange(during: boolean): string {
  if (during) return 'The exchange of the buckets starts during the backward pass.'
  const after = 'The buckets are exchanged after the backward pass'
  if (flags.overlap === 'off') return `${after}, as --overlap off says.`
  return `${after}: the ranks share memory, and no other core could move the data meanwhile.`
}
