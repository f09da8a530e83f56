import { initDeviceMesh } from '@tsrun/distributed'
import {
  clipGradients,
  contextParallel,
  crossEntropy,
  dataParallel,
  fullyShard,
  ownerOfParameters,
  parallelize,
  pipeline,
  recordLoss,
  recordModule,
  tf,
  vocabParallelCrossEntropy,
} from '@tsrun/training'
import { copyPieces } from '@tsrun/training/parts'
import { makeOptimizer, MAX_NORM, valuesOf } from './reference.mjs'
import { addTraffic, countingGroup, differences, expectedTraffic, noTraffic } from './traffic.mjs'

/**
 * @typedef {import('@tsrun/distributed').ProcessGroup} ProcessGroup
 * @typedef {import('@tsrun/training').Tensor} Tensor
 * @typedef {import('@tsrun/training').Piece} Piece
 * @typedef {import('@tsrun/training').Part} Part
 *
 * One step of a layout, on this rank.
 * @typedef {object} PartResult
 * @property {number} loss
 * @property {number} norm
 * @property {readonly Piece[]} gradients - this rank's parts, before they are clipped
 * @property {readonly Piece[]} parameters - after the step
 */

/**
 * Trains a model in a layout. All ranks of the group call it.
 *
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('./models.mjs').Problem} problem
 * @param {ProcessGroup} group
 * @param {number} steps
 * @param {(step: number, result: PartResult) => void} onStep
 * @returns {Promise<{ traffic: import('./traffic.mjs').Traffic, miscounts: string[] }>} of one step, on
 *   this rank, and where it differs from what follows from the layout
 */
export async function trainTogether(configuration, problem, group, steps, onStep) {
  const { dp = 1, shard = 1, pp = 1, cp = 1, tp = 1 } = configuration
  const mesh = await initDeviceMesh({ dp, shard, pp, cp, tp }, group)
  // Ranks with different examples, or with different tokens of the same examples.
  const { world: averaged } = await mesh.get('dp', 'cp')
  const traffic = { averaging: noTraffic(), cp: noTraffic(), pp: noTraffic(), tp: noTraffic() }
  const axes = {
    dp: countingGroup(averaged, traffic.averaging),
    cp: countingGroup(mesh.cp, traffic.cp),
    shard: countingGroup(mesh.shard, traffic.averaging),
    pp: countingGroup(mesh.pp, traffic.pp),
    tp: countingGroup(mesh.tp, traffic.tp),
  }
  const trainer = await makeTrainer(configuration, problem, axes)
  const optimizer = makeOptimizer()
  const replicas = dp * shard
  const replica = mesh.dp.rank * shard + mesh.shard.rank
  const rows = problem.examples / replicas
  const total = group.alloc('float64', 1)
  let once = structuredClone(traffic)
  for (let step = 0; step < steps; step++) {
    for (const axis of Object.values(traffic)) Object.assign(axis, noTraffic())
    const batch = problem.batch(step, replica * rows, (replica + 1) * rows, mesh.cp)
    const loss = await trainer.backward({ size: rows, ...batch })
    const gradients = await trainer.gradients()
    const before = valuesOf(gradients)
    const norm = await clipGradients(trainer.parameters, gradients, {
      maxNorm: MAX_NORM,
      ...(tp > 1 && { tensor: axes.tp }),
      ...(shard > 1 && { shard: axes.shard }),
      ...(pp > 1 && { pipeline: axes.pp }),
    })
    await trainer.update(optimizer, gradients)
    once = structuredClone(traffic)
    total[0] = loss
    // Each replica has the mean over its part; ranks along the other axes have the same value.
    await group.allReduce(total, { op: 'avg' })
    const parameters = await trainer.pieces()
    const pieces = parameters.map((piece) => ({
      ...piece,
      values: /** @type {Float32Array} */ (before.get(piece.name)),
    }))
    onStep(step, { loss: /** @type {number} */ (total[0]), norm, gradients: pieces, parameters })
  }
  group.free(total)
  const place = { stage: mesh.pp.rank, averaging: trainer.traffic() }
  const expected = expectedTraffic(configuration, problem, place)
  trainer.dispose()
  optimizer.dispose()
  return {
    traffic: addTraffic(Object.values(once)),
    miscounts: differences(once, expected).map((each) => `rank ${group.rank}: ${each}`),
  }
}

/**
 * @typedef {{ dp: ProcessGroup, cp: ProcessGroup, shard: ProcessGroup, pp: ProcessGroup, tp: ProcessGroup }} Axes
 * @typedef {{ size: number, inputs: () => Tensor, labels: () => Tensor }} Batch
 * @typedef {import('@tsrun/training').ClippedGradients} Gradients
 *
 * @typedef {object} Trainer
 * @property {(batch: Batch) => Promise<number>} backward - resolves to the loss
 * @property {() => Promise<Gradients>} gradients
 * @property {readonly import('@tsrun/training').Parameter[]} parameters
 * @property {(optimizer: import('@tsrun/training').Optimizer, gradients: Gradients) => Promise<void>} update
 * @property {() => Promise<readonly Piece[]>} pieces - of the parameters
 * @property {() => { collectives: number, bytes: number }} traffic - of one step of data parallelism or ZeRO
 * @property {() => void} dispose
 */

/**
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('./models.mjs').Problem} problem
 * @param {Axes} axes
 * @returns {Promise<Trainer>}
 */
async function makeTrainer(configuration, problem, axes) {
  const { pp = 1, schedule, microbatches = 4, chunks, tp = 1, sequence = false } = configuration
  const hasContext = (configuration.cp ?? 1) > 1
  const plan = problem.plan(sequence)
  const isShared = tp > 1
  const cut = isShared && problem.plan(false)['lm_head'] !== undefined
  if (pp === 1 && schedule === undefined) {
    const whole = hasContext ? contextParallel(problem.build(), axes.cp) : problem.build()
    const model = isShared ? parallelize(whole, plan, axes.tp) : whole
    const loss = cut ? vocabParallelCrossEntropy(axes.tp, 'mean') : crossEntropy
    return await moduleTrainer(configuration, model, loss, axes)
  }
  const parts = hasContext ? contextParallel(problem.recipe, axes.cp) : problem.recipe
  const recipe = isShared ? parallelize(parts, plan, axes.tp) : parts
  const pipe = pipeline(recipe, axes.pp, {
    .../** @type {object} */ (schedule === undefined ? {} : { schedule }),
    ...(chunks !== undefined && { chunks }),
    recompute: configuration.recompute === true,
    microbatches,
    ...(cut && { loss: vocabParallelCrossEntropy(axes.tp, 'sum') }),
  })
  const replica = await replicate(configuration, pipe, axes)
  return {
    ...replica,
    async backward(batch) {
      const { loss } = await pipe.forwardBackward(batch, replica.onGradient)
      return loss
    },
    dispose() {
      replica.dispose()
      pipe.dispose()
    },
  }
}

/**
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('@tsrun/training').Module} model
 * @param {import('@tsrun/training').Loss} lossOf
 * @param {Axes} axes
 * @returns {Promise<Trainer>}
 */
async function moduleTrainer(configuration, model, lossOf, axes) {
  const replica = await replicate(configuration, model, axes)
  const one = tf.scalar(1)
  return {
    ...replica,
    async backward({ inputs, labels }) {
      const [x, y] = [inputs(), labels()]
      const outputs = await replica.record(x)
      const loss = recordLoss(lossOf, outputs.value, y)
      const value = /** @type {number} */ (loss.value.dataSync()[0])
      const dy = /** @type {Tensor} */ (loss.backward(one, () => undefined))
      await outputs.backward(dy, replica.onGradient)
      loss.dispose()
      outputs.dispose()
      tf.dispose([x, y, dy])
      return value
    },
    dispose() {
      replica.dispose()
      one.dispose()
      for (const { value } of model.parameters) if (!value.isDisposed) value.dispose()
    },
  }
}

/**
 * Averages the gradients over the replicas, and updates the parameters that this rank owns.
 *
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('@tsrun/training').Module | import('@tsrun/training').Pipeline} module
 * @param {Axes} axes
 */
async function replicate({ zero, deterministic = true }, module, axes) {
  const settings = { bucketBytes: 4096, firstBucketBytes: 1024, deterministic }
  if (zero !== undefined) {
    const groups = axes.dp.size > 1 ? { shard: axes.shard, replicate: axes.dp } : axes.shard
    const sharded = await fullyShard(module, groups, { stage: zero, ...settings })
    return {
      parameters: sharded.shards,
      traffic: () => sharded.traffic,
      onGradient: sharded.onGradient,
      record: (/** @type {Tensor} */ x) => sharded.record(x),
      gradients: () => sharded.gradients(),
      update: (
        /** @type {import('@tsrun/training').Optimizer} */ optimizer,
        /** @type {Gradients} */ gradients,
      ) => sharded.step(optimizer, /** @type {ReadonlyMap<string, Float32Array>} */ (gradients)),
      pieces: async () => await copyPieces(sharded),
      dispose: () => sharded.dispose(),
    }
  }
  const replica = await dataParallel(module, axes.dp, settings)
  const owner = ownerOfParameters(module.parameters)
  return {
    parameters: module.parameters,
    // The first step changes the order of the gradients, and with it the buckets.
    traffic: () => replica.traffic,
    onGradient: replica.onGradient,
    record: async (/** @type {Tensor} */ x) =>
      recordModule(/** @type {import('@tsrun/training').Module} */ (module), x, {
        needsInputGradient: false,
      }),
    gradients: () => replica.gradients(),
    update: async (
      /** @type {import('@tsrun/training').Optimizer} */ optimizer,
      /** @type {Gradients} */ gradients,
    ) => {
      optimizer.step(module.parameters, gradients)
    },
    pieces: async () => await copyPieces(owner),
    dispose: () => replica.dispose(),
  }
}
