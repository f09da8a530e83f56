import { initDeviceMesh } from '@tsrun/distributed'
import { ownerOfParameters, tf, trainer } from '@tsrun/training'
import { copyPieces } from '@tsrun/training/parts'
import { makeOptimizer, MAX_NORM } from './reference.mjs'
import { noTraffic } from './traffic.mjs'

/**
 * Trains a model in a layout that `trainer` puts together. All ranks of the group call it.
 *
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('./models.mjs').Problem} problem
 * @param {import('@tsrun/distributed').ProcessGroup} group
 * @param {number} steps
 * @param {(step: number, result: import('./layouts.mjs').PartResult) => void} onStep
 * @returns {Promise<{ traffic: import('./traffic.mjs').Traffic, miscounts: string[] }>} traffic is not
 *   counted
 */
export async function trainByTrainer(configuration, problem, group, steps, onStep) {
  const { dp = 1, shard = 1, pp = 1, cp = 1, tp = 1 } = configuration
  const { zero, schedule, chunks, microbatches = 4, recompute = false, sequence } = configuration
  const { deterministic = true } = configuration
  const mesh = await initDeviceMesh({ dp, shard, pp, cp, tp }, group)
  const optimizer = makeOptimizer()
  const plan = problem.plan(sequence === true)
  const run = await trainer(problem.recipe, {
    ...{ mesh, optimizer, clip: MAX_NORM, microbatches, recompute },
    ...{ deterministic, bucketBytes: 4096, firstBucketBytes: 1024 },
    ...(zero !== undefined && { zero }),
    ...(tp > 1 && { plan }),
    .../** @type {object} */ (schedule !== undefined && { schedule }),
    ...(chunks !== undefined && { chunks }),
  })
  const [replica, replicas] = run.share
  const rows = problem.examples / replicas
  let tensors = 0
  for (let step = 0; step < steps; step++) {
    const batch = problem.batch(step, replica * rows, (replica + 1) * rows, mesh.cp)
    const { loss, norm = NaN, examples } = await run.step({ size: rows, ...batch })
    if (examples !== problem.examples) {
      throw new Error(`a step of ${problem.examples} examples says that it had ${examples}`)
    }
    const { numTensors } = tf.memory()
    // The first step makes the state of the optimizer.
    if (step === 0) tensors = numTensors
    else if (numTensors !== tensors) {
      throw new Error(`${configuration.name}: step ${step} leaves ${numTensors - tensors} tensors`)
    }
    const { model } = run.state
    const owner = 'pieces' in model ? model : ownerOfParameters(model.parameters)
    onStep(step, { loss, norm, gradients: [], parameters: await copyPieces(owner) })
  }
  run.dispose()
  optimizer.dispose()
  return { traffic: noTraffic(), miscounts: [] }
}
