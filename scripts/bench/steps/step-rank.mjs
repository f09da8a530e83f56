// Measures workloads on one backend: step-rank.mjs OUTPUT BACKEND WORKLOADS, where WORKLOADS is JSON.
import { writeFileSync } from 'node:fs'
import {
  BatchNorm,
  crossEntropy,
  loadBackend,
  recordLoss,
  recordModule,
  sumInto,
  tf,
} from '@tsrun/training'
import { unlessMissing } from '../ranks.mjs'
import { trainings } from './trainings.mjs'

/**
 * @typedef {import('./workloads.mjs').Workload} Workload
 * @typedef {[forward: number, backward: number, update: number]} Times - milliseconds
 */

const [output, name, argument] = /** @type {[string, 'wasm', string]} */ (process.argv.slice(2))
/** @type {readonly Workload[]} */
const workloads = JSON.parse(argument)

/** Whether an operation may return before its result is computed. */
let isBehind = false
const result = await unlessMissing(async () => {
  const { device, threads } = await loadBackend(name)
  isBehind = device !== 'CPU'
  const samples = []
  for (const workload of workloads) {
    const run = { matmul: multiplier, norm: normalizer }[workload.kind] ?? trainer
    samples.push({ workload: workload.name, times: await repeat(workload, run(workload)) })
  }
  return { device, threads, samples }
})
writeFileSync(output, JSON.stringify(result))

/**
 * @param {Workload} workload
 * @param {() => Promise<Times>} run
 */
async function repeat({ warmUps, repeats, seconds }, run) {
  const end = performance.now() + 1000 * seconds
  const goesOn = (/** @type {number} */ done) => done < 3 || performance.now() < end
  for (let i = 0; i < warmUps && goesOn(i + 2); i++) await run()
  /** @type {Times[]} */
  const times = []
  while (times.length < repeats && goesOn(times.length)) times.push(await run())
  return times
}

/**
 * One training step: forward pass with the cross-entropy, backward pass, and the update if any.
 *
 * @param {Workload} workload
 * @returns {() => Promise<Times>}
 */
function trainer(workload) {
  const kind = /** @type {'mlp'} */ (workload.kind)
  const { model, optimizer, x, labels } = trainings[kind](workload)
  const { parameters } = model
  const one = tf.scalar(1)
  return async () => {
    const start = performance.now()
    const outputs = recordModule(model, x, { needsInputGradient: false })
    const loss = recordLoss(crossEntropy, outputs.value, labels)
    await loss.value.data()
    const recorded = performance.now()
    /** @type {Map<string, import('@tsrun/training').Tensor>} */
    const gradients = new Map()
    const dy = /** @type {import('@tsrun/training').Tensor} */ (loss.backward(one, () => undefined))
    outputs.backward(dy, sumInto(gradients))
    await finished([...gradients.values()].at(-1))
    tf.dispose(dy)
    loss.dispose()
    outputs.dispose()
    const differentiated = performance.now()
    if (workload.updates === false) {
      tf.dispose([...gradients.values()])
      return [recorded - start, differentiated - recorded, 0]
    }
    optimizer.step(parameters, gradients)
    await finished(parameters[0]?.value)
    const end = performance.now()
    return [recorded - start, differentiated - recorded, end - differentiated]
  }
}

/**
 * Batch normalization of images of 28 x 28, forward and backward.
 *
 * @param {Workload} workload
 * @returns {() => Promise<Times>}
 */
function normalizer({ width, batch }) {
  const model = new BatchNorm({ name: 'norm', channels: width })
  const [x, dy] = [1, 2].map((seed) => {
    return tf.randomNormal([batch, 28, 28, width], 0, 1, 'float32', seed)
  })
  return async () => {
    const start = performance.now()
    const outputs = recordModule(model, /** @type {never} */ (x), { needsInputGradient: true })
    await finished(outputs.value)
    const normalized = performance.now()
    /** @type {Map<string, import('@tsrun/training').Tensor>} */
    const gradients = new Map()
    const dx = outputs.backward(/** @type {never} */ (dy), sumInto(gradients))
    await finished(dx)
    const end = performance.now()
    tf.dispose([...gradients.values(), /** @type {never} */ (dx)])
    outputs.dispose()
    return [normalized - start, end - normalized, 0]
  }
}

/**
 * @param {Workload} workload
 * @returns {() => Promise<Times>}
 */
function multiplier({ width }) {
  const [a, b] = [1, 2].map((seed) => tf.randomNormal([width, width], 0, 1, 'float32', seed))
  return async () => {
    const start = performance.now()
    const product = tf.matMul(/** @type {never} */ (a), /** @type {never} */ (b))
    await finished(product)
    const end = performance.now()
    product.dispose()
    return [end - start, 0, 0]
  }
}

/**
 * Waits until the result is computed. On the CPU it is when an operation returns; on a GPU one value of
 * the last result is read.
 *
 * @param {import('@tsrun/training').Tensor | undefined} tensor
 */
async function finished(tensor) {
  if (tensor === undefined || !isBehind) return
  const value = tf.tidy(() => tf.slice(tf.reshape(tensor, [-1]), [0], [1]))
  await value.data()
  value.dispose()
}
