import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { DistributedOptimizer } from '@tsrun/layers'
import { loadBackend, tf } from '@tsrun/training'
import { runModule } from '../training/backend/support/process.ts'
import { vulkan } from '../training/backend/support/vulkan.ts'
import { needing } from '../needs.ts'

describe('a DistributedOptimizer', () => {
  beforeAll(() => loadBackend('cpu'))

  it('makes the updates of the wrapped optimizer in a group of one rank', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const x = tf.variable(tf.scalar(3))
      const optimizer = new DistributedOptimizer(tf.train.sgd(0.5), group)
      const before = tf.memory().numTensors
      optimizer.minimize(() => tf.square(x))
      expect(x.dataSync()[0]).toBe(0)
      expect(tf.memory().numTensors).toBe(before)
      expect(optimizer.iterations).toBe(1)
      expect(optimizer.getConfig()).toEqual({ learningRate: 0.5 })
      expect(optimizer.getClassName()).toBe('SGD')
      const weights = await optimizer.getWeights()
      await optimizer.setWeights(weights)
      expect(weights.map(({ name }) => name)).toEqual([(await optimizer.saveIterations()).name])
      optimizer.dispose()
      x.dispose()
    })
  })

  it('gives the wrapped optimizers of all ranks the weights of rank 0', async () => {
    const seen = await runWorld({ size: 2, seed: 1 }, async (group) => {
      const x = tf.variable(tf.tensor1d([3, 4]), true, `shared-${String(group.rank)}`)
      const inner = tf.train.momentum(0.1, 0.9)
      for (let step = 0; step < 3 - group.rank; step++) {
        inner.minimize(() => tf.sum(tf.square(x)), false, [x])
      }
      const optimizer = new DistributedOptimizer(inner, group)
      await optimizer.setWeights(await optimizer.getWeights())
      const [iterations, momentum] = await optimizer.getWeights()
      x.dispose()
      return [...iterations!.tensor.dataSync(), ...momentum!.tensor.dataSync(), inner.iterations]
    })
    expect(seen[0]).toHaveLength(4)
    expect(seen[0]![3]).toBe(3)
    expect(seen[1]).toEqual(seen[0])
  })

  it('leaks no tensor if the weights of rank 0 do not arrive', async () => {
    let arrived = 0
    const group = {
      ...{ rank: 1, size: 2, ranks: [0, 1], free: () => undefined },
      allocUnsafe: (_: string, length: number) => new Float32Array(length),
      broadcastObject: () =>
        Promise.resolve(
          ['first', 'second'].map((name) => ({ name, shape: [2], dtype: 'float32' })),
        ),
      broadcast: () => {
        const isLost = arrived++ > 0
        const work = isLost ? Promise.reject(new Error('rank 0 is gone')) : Promise.resolve()
        return Object.assign(work, { isCompleted: () => true })
      },
    } as unknown as ProcessGroup
    const optimizer = new DistributedOptimizer(tf.train.adam(0.1), group)
    const before = tf.memory().numTensors
    await expect(optimizer.setWeights([])).rejects.toThrow('rank 0 is gone')
    expect(arrived).toBe(2)
    expect(tf.memory().numTensors).toBe(before)
  })

  it('is refused if ranks share a process, because they cannot block', async () => {
    const x = tf.variable(tf.scalar(3))
    const world = runWorld({ size: 2 }, (group) => {
      const optimizer = new DistributedOptimizer(tf.train.sgd(0.5), group)
      optimizer.minimize(() => tf.square(x), false, [x])
      return Promise.resolve()
    })
    await expect(world).rejects.toMatchObject({ code: 'ERR_TSR_SYNC_UNSUPPORTED' })
    x.dispose()
  })

  it('refuses gradients of variables that rank 0 does not have, and leaks no tensor', () => {
    let other: string[] | undefined
    let reductions = 0
    const group = {
      rank: 1,
      size: 2,
      ranks: [2, 5],
      alloc: (_: string, length: number) => new Float32Array(length),
      free: () => undefined,
      allGatherObjectSync: (own: { described: string[] }) => [
        { ...own, described: other ?? own.described },
        own,
      ],
      allReduceSync: () => reductions++,
    } as unknown as ProcessGroup
    const x = tf.variable(tf.scalar(3), true, 'of-rank-1')
    const inner = tf.train.sgd(0.5)
    const optimizer = new DistributedOptimizer(inner, group)
    const step = () => {
      optimizer.applyGradients([{ name: x.name, tensor: gradient }])
    }
    const gradient = tf.scalar(1)
    other = ['of-rank-0 []']
    expect(step).toThrow('Rank 5 has different parameters from rank 2')
    expect(reductions).toBe(0)
    other = undefined
    step()
    step()
    expect(reductions).toBe(2)
    expect(x.dataSync()[0]).toBe(2)
    const before = tf.memory().numTensors
    inner.applyGradients = () => {
      throw new Error('refused')
    }
    expect(step).toThrow('refused')
    expect(tf.memory().numTensors).toBe(before)
    optimizer.dispose()
    tf.dispose([x, gradient])
  })

  it('warns once that the backend cpu is slow, unless TSRUN_BACKEND names it', async () => {
    const script = `
      const { runWorld } = await import('@tsrun/distributed')
      const { DistributedOptimizer } = await import('@tsrun/layers')
      const { tf } = training
      await training.loadBackend('cpu')
      await runWorld({ size: 1 }, async (group) => {
        const optimizer = new DistributedOptimizer(tf.train.sgd(0.5), group)
        const x = tf.variable(tf.scalar(3))
        for (let i = 0; i < 2; i++) optimizer.minimize(() => tf.square(x), false, [x])
      })`
    const { stderr } = await runModule(script, { TSRUN_BACKEND: '' })
    expect(stderr.match(/slow backend cpu.*await loadBackend\(\)/g)).toHaveLength(1)
    expect(await runModule(script, { TSRUN_BACKEND: 'cpu' })).toMatchObject({ stderr: '' })
  })

  const { it: itOnWebGPU } = needing(vulkan !== undefined, 'Vulkan driver')
  itOnWebGPU('is refused on webgpu, which cannot wait inside fit', async () => {
    const { stdout, stderr } = await runModule(
      `await training.loadBackend('webgpu')
      const { DistributedOptimizer } = await import('@tsrun/layers')
      const { tf } = training
      const optimizer = new DistributedOptimizer(tf.train.sgd(0.5), { rank: 0, size: 2 })
      const x = tf.variable(tf.scalar(3))
      try { optimizer.minimize(() => tf.square(x), false, [x]) } catch (error) { console.log(error.message) }`,
      vulkan,
    )
    expect(stderr).toBe('')
    expect(stdout).toMatch(/webgpu cannot be used: it cannot wait for a collective inside .*pass/)
  })
})
