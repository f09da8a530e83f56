// Data parallel training: every rank has the whole network and a share of each batch.
//
//   npx tsrun --nproc 4 examples/data-parallel.ts
//   npx tsrun --nproc 4 examples/data-parallel.ts --wire bfloat16 --bucket 65536
//   node --import tsx examples/data-parallel.ts        (the same script in one process)
//
// The gradients are averaged over the ranks in buckets, while the backward pass still computes those of
// earlier layers. CS336's lecture averages them after the backward pass, one parameter at a time, as
// examples/lecture/data-parallel.ts does. The output shows how long the ranks still wait for gradients.

import * as training from '@tsrun/training'
import { choice, count, integer, positive, readFlags } from './lib/flags.ts'
import { gpuUtilisation } from './lib/gpu-utilisation.ts'
import { grouped, percent, printResult } from './lib/output.ts'
import { Speed } from './lib/speed.ts'

const flags = readFlags({
  epochs: count(1),
  batch: count(256),
  images: count(60_000),
  bucket: count(256 * 1024),
  wire: choice(['float32', 'float16', 'bfloat16'] as const, 'float32'),
  seed: integer(0),
  lr: positive(0.003),
})
const { batch, epochs, seed } = flags

const run = await training.trainer(training.shardedMLP({ layers: 16, seed }), {
  optimizer: new training.Adam({ learningRate: flags.lr }),
  bucketBytes: flags.bucket,
  firstBucketBytes: flags.bucket / 4,
  wire: flags.wire,
})
const train = training.mnist({ split: 'train' })
const steps = epochs * Math.ceil(Math.min(flags.images, train.size) / batch)
const speed = new Speed()
const { evaluations } = await run.fit(train, {
  ...{ batch, seed, steps },
  evaluate: { data: training.mnist({ split: 'test' }) },
  callbacks: [speed],
})

const shares = await run.layout.world.allGatherObject(speed.cpuShare)
const gpus = run.rank === 0 ? await gpuUtilisation() : undefined
if (run.rank === 0) {
  const { accuracy } = evaluations.at(-1)!
  const { collectives, bytes } = run.traffic ?? { collectives: 0, bytes: 0 }
  const { examplesPerSecond: imagesPerSecond, exposed } = speed
  console.log(
    `test accuracy ${percent(accuracy, 2)}  ${grouped(imagesPerSecond)} images/s  ` +
      `${percent(exposed)} of the time waiting for gradients`,
  )
  console.log(`CPU of each rank: ${shares.map((share) => percent(share, 0)).join(', ')}`)
  if (gpus !== undefined) console.log(gpus)
  console.log(`${collectives} buckets, ${grouped(bytes)} bytes of gradients per step`)
  const ranks = run.layout.world.size
  printResult({ ranks, accuracy, imagesPerSecond, exposed, collectives, bytes })
}
run.dispose()
await run.layout.world.destroy()
