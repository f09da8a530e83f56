// Data parallel training: every rank has the whole network and a share of each batch.
//
//   npx tsrun --nproc 4 examples/data-parallel.ts
//   npx tsrun --nproc 4 examples/data-parallel.ts --wire bfloat16 --bucket 65536
//   node --import tsx examples/data-parallel.ts        (the same script in one process)
//
// The gradients are averaged over the ranks in buckets, while the backward pass still computes those of
// earlier layers. CS336's lecture averages them after the backward pass, one parameter at a time. The
// output shows how long the ranks still wait for communication.

import { initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { choice, count, integer, positive, readFlags } from './lib/flags.ts'
import { grouped, percent, printResult, Progress } from './lib/output.ts'

const { tf } = training
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

const group = await initProcessGroup()
await training.loadBackend()
const { rank, size } = group

const model = training.shardedMLP({ layers: 16, seed }).build()
const replica = await training.dataParallel(model, group, {
  bucketBytes: flags.bucket,
  firstBucketBytes: flags.bucket / 4,
  wire: flags.wire,
  // The last batch may not divide evenly. This keeps the mean over all examples correct.
  reduction: 'token',
  // It may even have fewer examples than ranks. Ranks without any contribute gradients of zero.
  unused: 'zeros',
})
const optimizer = new training.Adam({ learningRate: flags.lr })
const train = training.mnist({ split: 'train' })
const test = training.mnist({ split: 'test' })
const one = tf.scalar(1)

/** Computes the loss and the gradients of this rank's share of a batch. Returns the loss. */
function backward({ inputs, labels }: training.ExampleBatch): number {
  const [x, y] = [inputs(), labels()]
  const outputs = training.recordModule(model, x, { needsInputGradient: false })
  const loss = training.recordLoss(training.summedCrossEntropy, outputs.value, y)
  const outputGradient = loss.backward(one, () => undefined)!
  outputs.backward(outputGradient, replica.onGradient)
  const [value] = loss.value.dataSync()
  outputs.dispose()
  loss.dispose()
  tf.dispose([x, y, outputGradient])
  return value!
}

/** The share of the test images that are read correctly. Every rank reads a part of them. */
async function judge(): Promise<number> {
  const right = Float64Array.of(0)
  for (const { inputs, labels } of training.batches(test, {
    batch: 1000,
    shuffle: false,
    share: [rank, size],
  })) {
    const [x, y] = [inputs(), labels()]
    const outputs = model.forward(x)
    right[0]! += training.countCorrect(outputs, y)
    tf.dispose([x, y, outputs])
  }
  await group.allReduce(right)
  return right[0]! / test.size
}

const progress = new Progress()
let [accuracy, speed, exposed] = [0, 0, 0]
for (let epoch = 0; epoch < epochs; epoch++) {
  const begin = performance.now()
  let [images, waited] = [0, 0]
  const loss = Float64Array.of(0)
  let seen = 0
  for (const examples of training.batches(train, { batch, seed, epoch, share: [rank, size] })) {
    if (seen >= flags.images) break
    seen += batch
    if (examples.size > 0) loss[0]! += backward(examples)
    const computed = performance.now()
    const gradients = await replica.gradients(examples.size)
    waited += performance.now() - computed
    optimizer.step(model.parameters, gradients)
    images += examples.size
    if (rank === 0) {
      progress.update(() => {
        const rate = (images * size) / ((performance.now() - begin) / 1000)
        return `epoch ${epoch + 1}/${epochs}  ${grouped(images * size)} images  ${grouped(rate)} images/s`
      })
    }
  }
  const seconds = (performance.now() - begin) / 1000
  const total = Math.min(seen, train.size)
  speed = total / seconds
  exposed = waited / 1000 / seconds
  await group.allReduce(loss)
  accuracy = await judge()
  if (rank === 0) {
    progress.log(
      `epoch ${epoch + 1}/${epochs}  loss ${(loss[0]! / total).toFixed(4)}  ` +
        `test accuracy ${percent(accuracy, 2)}  ${grouped(speed)} images/s  ` +
        `${percent(exposed)} of the time waiting for gradients`,
    )
  }
}
if (rank === 0) {
  const { collectives, bytes } = replica.traffic
  console.log(`${collectives} buckets, ${grouped(bytes)} bytes of gradients per step`)
  printResult({ ranks: size, accuracy, imagesPerSecond: speed, exposed, collectives, bytes })
}
replica.dispose()
await group.destroy()
