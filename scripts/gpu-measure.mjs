// The measurements of scripts/gpu-check.sh that run in Node, each in a new process.
//
//   node scripts/gpu-measure.mjs losses BACKEND            50 steps of a small network
//   node scripts/gpu-measure.mjs speed BACKEND SIZE...     products of SIZE x SIZE, and a training step
//   node scripts/gpu-measure.mjs reduce BACKEND            all-reduces of tensors between ranks
//   node scripts/gpu-measure.mjs compare A.json B.json     whether two files of losses agree
import { readFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { median } from './bench/figures.mjs'

const { tf } = training

/** The largest relative difference allowed between the losses of two backends. */
const TOLERANCE = 1e-4
/** The least duration of a measurement in milliseconds, and the number of repetitions. */
const TIME = 500
const REPETITIONS = 5

/** Waits until the device has computed `tensor`, because the kernels of a GPU run asynchronously. */
async function settle(tensor) {
  const corner = tf.slice(tensor, [0, 0], [1, 1])
  await corner.data()
  corner.dispose()
}

/** The milliseconds that one call takes: the median of several measurements of `run(calls)`. */
async function timeOf(run) {
  const measure = async (count) => {
    const begin = performance.now()
    await run(count)
    return performance.now() - begin
  }
  await measure(1)
  const count = Math.max(1, Math.ceil(TIME / REPETITIONS / (await measure(1))))
  const times = []
  for (let i = 0; i < REPETITIONS; i++) times.push((await measure(count)) / count)
  return median(times)
}

/** On GPUs that support it (Ampere and later), TensorFlow multiplies with a mantissa of 10 bits by default. */
function precision(backend, device) {
  if (backend !== 'tensorflow' || device === 'CPU') return ''
  return process.env['NVIDIA_TF32_OVERRIDE'] === '0' ? ', float32' : ', TF32 where the GPU has it'
}

async function measureProduct(size) {
  const a = tf.randomUniform([size, size], -1, 1, 'float32', 1)
  const b = tf.randomUniform([size, size], -1, 1, 'float32', 2)
  const ms = await timeOf(async (count) => {
    let product
    for (let i = 0; i < count; i++) {
      product?.dispose()
      product = tf.matMul(a, b)
    }
    await settle(product)
    product.dispose()
  })
  a.dispose()
  b.dispose()
  return { size, ms, gflops: (2 * size ** 3) / ms / 1e6 }
}

/** A network, and a generator of batches that are the same on every backend. */
function makeTrainer(group, { layers, width, size }) {
  const next = training.generator('examples', 1)
  const shape = { inputs: width, hidden: width, outputs: 10 }
  const pipe = training.pipeline(training.shardedMLP({ layers, ...shape, seed: 1 }), group, {
    microbatches: 1,
    optimizer: new training.SGD({ learningRate: 0.01, momentum: 0.9 }),
  })
  const makeBatch = () => {
    const inputs = Float32Array.from({ length: size * width }, () => training.uniform(next) * 2 - 1)
    const labels = Int32Array.from({ length: size }, () => Math.floor(training.uniform(next) * 10))
    return {
      size,
      inputs: () => training.tensorFrom(inputs, [size, width]),
      labels: () => training.tensorFrom(labels, [size], 'int32'),
    }
  }
  return {
    makeBatch,
    step: async (batch) => (await pipe.step(batch)).loss,
    dispose: () => {
      pipe.dispose()
    },
  }
}

async function measureLosses(group) {
  const trainer = makeTrainer(group, { layers: 4, width: 64, size: 64 })
  const losses = []
  for (let i = 0; i < 50; i++) losses.push(await trainer.step(trainer.makeBatch()))
  trainer.dispose()
  return losses
}

async function measureStep(group, layers, width, size) {
  const trainer = makeTrainer(group, { layers, width, size })
  const batch = trainer.makeBatch()
  const ms = await timeOf(async (count) => {
    for (let i = 0; i < count; i++) await trainer.step(batch)
  })
  trainer.dispose()
  return { network: `MLP ${layers}x${width}, batch ${size}`, ms }
}

/** MiB: a small message, the first bucket of gradients, and a usual one. */
const REDUCED = [1 / 16, 1, 25]

/** The all-reduce of a tensor, as often on all ranks: the median of its milliseconds on this one. */
async function measureReduce(group, mib) {
  const own = tf.fill([mib * 2 ** 18], group.rank + 1)
  const times = []
  let sums
  for (let i = 0; i < 12; i++) {
    await group.barrier()
    sums?.dispose()
    const begin = performance.now()
    sums = await training.allReduceTensor(group, own)
    times.push(performance.now() - begin)
  }
  const ends = [tf.min(sums), tf.max(sums)]
  const expected = (group.size * (group.size + 1)) / 2
  for (const end of ends) {
    const [found] = await end.data()
    if (found !== expected) throw new Error(`the sum is ${found}, and not ${expected}`)
  }
  for (const tensor of [own, sums, ...ends]) tensor.dispose()
  // the first ones connect, and allocate
  return { mib, ms: median(times.slice(2)) }
}

function compare(one, other) {
  const [a, b] = [one, other].map((file) => JSON.parse(readFileSync(file, 'utf8')).losses)
  const differences = a.map((loss, i) => Math.abs(loss - b[i]) / Math.abs(b[i]))
  const largest = Math.max(...differences)
  const agree = a.length === b.length && a.length > 0 && largest <= TOLERANCE
  return { agree, steps: a.length, largest }
}

const [mode, name, ...rest] = process.argv.slice(2)
if (mode === 'compare') {
  const { agree, steps, largest } = compare(name, rest[0])
  console.log(
    `losses of ${steps} steps differ from those of plain JavaScript by up to ` +
      `${largest.toExponential(1)} (bound ${TOLERANCE})`,
  )
  process.exitCode = agree ? 0 : 1
} else {
  const { device, threads } = await training.loadBackend(name)
  const group = await initProcessGroup()
  if (mode === 'reduce') {
    const found = []
    for (const mib of REDUCED) found.push(await measureReduce(group, mib))
    const list = found.map(({ mib, ms }) => `${mib * 1024} KiB ${ms.toFixed(2)} ms`).join(', ')
    if (group.rank === 0) console.log(list)
  } else if (mode === 'losses') {
    console.log(JSON.stringify({ device, threads, losses: await measureLosses(group) }))
  } else {
    const products = []
    for (const size of rest.map(Number)) products.push(await measureProduct(size))
    const steps = [await measureStep(group, 4, 1024, 128), await measureStep(group, 16, 128, 32)]
    console.log(`device ${device}, ${threads} ${threads === 1 ? 'thread' : 'threads'}`)
    for (const { size, gflops, ms } of products) {
      console.log(
        `matmul ${size}^3: ${gflops.toFixed(1)} GFLOP/s (${ms.toFixed(2)} ms)${precision(name, device)}`,
      )
    }
    for (const { network, ms } of steps) {
      console.log(`training step of ${network}: ${ms.toFixed(2)} ms`)
    }
  }
  await group.destroy()
}
