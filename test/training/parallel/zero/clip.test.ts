import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { gpt } from '@tsrun/models'
import {
  clipGradients,
  columnParallel,
  disposeModule,
  fullyShard,
  loadBackend,
  parallelize,
  pipeline,
  shardedMLP,
  tf,
} from '@tsrun/training'

beforeAll(async () => {
  await loadBackend('wasm')
})

it('gradient clipping does not need the tensor parallel group if it has one rank', async () => {
  const norms = await runWorld({ size: 2, seed: 1 }, async (world) => {
    const mesh = await initDeviceMesh({ dp: 2, tp: 1 }, world)
    const whole = shardedMLP({ layers: 1, inputs: 4, outputs: 4 }).build()
    const module = parallelize(whole, { 'layers.0': columnParallel() }, mesh.tp)
    const sharded = await fullyShard(module, mesh.dp)
    for (const parameter of module.parameters) {
      sharded.onGradient(parameter, tf.ones([...parameter.shape]))
    }
    const shares = await sharded.gradients()
    const options = { maxNorm: 1, shard: mesh.dp }
    const norm = await clipGradients(sharded.shards, shares, options)
    expect(
      await clipGradients(sharded.shards, shares, { ...options, tensor: mesh.tp }),
    ).toBeCloseTo(1)
    sharded.dispose()
    disposeModule(module)
    return norm
  })
  for (const norm of norms) expect(norm).toBeCloseTo(Math.sqrt(20), 5)
})

it.each([1, 3] as const)(
  'gradient clipping counts parameters of several pipeline stages once, in ZeRO stage %i',
  async (stage) => {
    const sizes = { layers: 2, width: 8, heads: 2, block: 4, vocabulary: 11, seed: 3 }
    const model = gpt({ ...sizes, tied: true })
    const whole = model.build()
    const values = whole.parameters.reduce((sum, { value }) => sum + value.size, 0)
    disposeModule(whole)
    const tokens = () => tf.tensor2d([1, 2, 3, 4, 5, 6, 7, 8], [2, 4], 'int32')
    const norms = await runWorld({ size: 4, seed: 1 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, world)
      const pipe = pipeline(model, mesh.pp, { microbatches: 2 })
      const sharded = await fullyShard(pipe, mesh.dp, { stage })
      await sharded.gather()
      const { gradients } = await pipe.forwardBackward({ size: 2, inputs: tokens, labels: tokens })
      for (const parameter of pipe.parameters) {
        gradients.get(parameter.name)!.dispose()
        sharded.onGradient(parameter, tf.ones([...parameter.shape]))
      }
      sharded.release()
      const shares = await sharded.gradients()
      const options = { maxNorm: 1e9, shard: mesh.dp, pipeline: mesh.pp }
      const norm = await clipGradients(sharded.shards, shares, options)
      sharded.dispose()
      pipe.dispose()
      return norm
    })
    for (const norm of norms) expect(norm).toBeCloseTo(Math.sqrt(values), 4)
  },
)
