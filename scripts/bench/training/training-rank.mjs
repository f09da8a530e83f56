// One of our ranks: training-rank.mjs OUTPUT BACKEND PLAN, where PLAN is JSON.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import {
  crossEntropy,
  dataParallel,
  disposeModule,
  loadBackend,
  pipeline,
  recordLoss,
  recordModule,
  SGD,
  shardedMLP,
  sumInto,
  tf,
} from '@tsrun/training'
import { batchOf, sizesOf, unlessMissing } from '../ranks.mjs'
import { trainings } from '../steps/trainings.mjs'
import { trains } from './plan.mjs'

/**
 * @typedef {import('../steps/workloads.mjs').Workload} Workload
 * @typedef {import('@tsrun/training').Tensor} Tensor
 * @typedef {import('@tsrun/training').Parameter} Parameter
 * @typedef {{ step: () => Promise<void>, dispose: () => void }} Trainer
 */

const [output, name, argument] = /** @type {[string, 'wasm', string]} */ (process.argv.slice(2))
/** @type {import('./plan.mjs').Plan} */
const { workloads, modes, microbatches, bucketMiB, engine } = JSON.parse(argument)
const bucketBytes = bucketMiB * 1024 * 1024

/** @type {Readonly<Record<import('./plan.mjs').Mode, (workload: Workload) => Promise<Trainer>>>} */
const trainers = {
  alone: replicaOf('silent'),
  ddp: replicaOf('overlap'),
  'ddp-silent': replicaOf('silent'),
  'ddp-sequential': replicaOf('sequential'),
  '1f1b': stage,
}

/** @type {import('@tsrun/distributed').ProcessGroup | undefined} */
let group
const result = await unlessMissing(async () => {
  const { device, threads } = await loadBackend(name)
  group = await initProcessGroup({ engine })
  const samples = []
  for (const workload of workloads) {
    for (const mode of modes.filter((mode) => trains(workload, mode))) {
      samples.push({ workload: workload.name, mode, ms: await run(workload, mode) })
    }
  }
  return { device, threads, samples }
})
if (Number(process.env['RANK']) === 0) writeFileSync(output, JSON.stringify(result))
await group?.destroy()

/**
 * The milliseconds that each step took on the slowest rank.
 *
 * @param {Workload} workload
 * @param {import('./plan.mjs').Mode} mode
 */
async function run(workload, mode) {
  const world = /** @type {import('@tsrun/distributed').ProcessGroup} */ (group)
  const trainer = await trainers[mode](workload)
  const { warmUps, repeats, seconds } = workload
  /** @type {number[]} */
  const own = []
  const begin = performance.now()
  const elapsed = new Float64Array(1)
  for (let i = -warmUps; own.length < repeats; i++) {
    elapsed[0] = performance.now() - begin
    // All ranks start a step together, and see the same time.
    await world.allReduce(elapsed, { op: 'max' })
    const isOver = /** @type {number} */ (elapsed[0]) > 1000 * seconds
    if (isOver && own.length >= 3) break
    const start = performance.now()
    await trainer.step()
    if (i >= 0 || isOver) own.push(performance.now() - start)
  }
  trainer.dispose()
  const times = Float64Array.from(own)
  await world.allReduce(times, { op: 'max' })
  return [...times]
}

/**
 * Every rank has the whole network, and an equal share of the batch.
 *
 * @param {'overlap' | 'sequential' | 'silent'} how - gradients are exchanged during the backward pass,
 * after it, or not at all
 * @returns {(workload: Workload) => Promise<Trainer>}
 */
function replicaOf(how) {
  return async (workload) => {
    const world = /** @type {import('@tsrun/distributed').ProcessGroup} */ (group)
    const kind = /** @type {'mlp'} */ (workload.kind)
    const share = { ...workload, batch: workload.batch / world.size }
    const { model, optimizer, x, labels } = trainings[kind](share)
    const replica = how === 'silent' ? undefined : await dataParallel(model, world, { bucketBytes })
    const one = tf.scalar(1)
    /** @type {(parameters: readonly Parameter[], gradients: Map<string, Tensor>) => void} */
    const sendLate = (parameters, gradients) => {
      for (const parameter of parameters.toReversed()) {
        const gradient = gradients.get(parameter.name)
        if (gradient !== undefined) replica?.onGradient(parameter, gradient)
      }
    }
    const step = async () => {
      const outputs = recordModule(model, x, { needsInputGradient: false })
      const loss = recordLoss(crossEntropy, outputs.value, labels)
      await loss.value.data()
      const dy = /** @type {Tensor} */ (loss.backward(one, () => undefined))
      /** @type {Map<string, Tensor>} */
      const gathered = new Map()
      if (replica === undefined || how === 'sequential') {
        outputs.backward(dy, sumInto(gathered))
        if (how === 'sequential') sendLate(model.parameters, gathered)
      } else outputs.backward(dy, replica.onGradient)
      tf.dispose(dy)
      loss.dispose()
      outputs.dispose()
      optimizer.step(model.parameters, (await replica?.gradientViews()) ?? gathered)
    }
    const dispose = () => {
      replica?.dispose()
      optimizer.dispose()
      disposeModule(model)
      tf.dispose([x, labels, one])
    }
    return { step, dispose }
  }
}

/**
 * Each rank has some of the layers.
 *
 * @param {Workload} workload
 * @returns {Promise<Trainer>}
 */
async function stage(workload) {
  const world = /** @type {import('@tsrun/distributed').ProcessGroup} */ (group)
  const pipe = pipeline(shardedMLP(sizesOf(workload)), world, {
    schedule: '1f1b',
    microbatches,
    optimizer: new SGD({ learningRate: 1e-3 }),
  })
  const { x, labels } = batchOf(workload, workload.batch)
  const batch = {
    size: workload.batch,
    inputs: () => tf.clone(x),
    labels: () => tf.clone(labels),
  }
  return await Promise.resolve({
    step: async () => {
      await pipe.step(batch)
    },
    dispose: () => {
      pipe.dispose()
      tf.dispose([x, labels])
    },
  })
}
