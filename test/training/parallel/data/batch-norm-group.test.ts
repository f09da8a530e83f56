import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  BatchNorm,
  dataParallel,
  inPass,
  Linear,
  loadBackend,
  Sequential,
  SGD,
  tf,
  wholeModel,
} from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

const batch = (rows: number) => ({
  size: rows,
  inputs: () => tf.ones([Math.max(1, rows), 2]),
  labels: () => tf.zeros([Math.max(1, rows)], 'int32'),
})

const optimizer = () => new SGD({ learningRate: 0.1 })

/** A group that counts the collectives of passes, without a rank to wait for. */
function counting(group: ProcessGroup) {
  const seen: string[] = []
  const allGatherSync = (all: Float64Array, own: Float64Array) => {
    seen.push('forward')
    all.set(own)
  }
  const allReduceSync = () => seen.push('backward')
  const counted = new Proxy(group, {
    get: (target, name): unknown => {
      if (name === 'allGatherSync') return allGatherSync
      if (name === 'allReduceSync') return allReduceSync
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  return { seen, group: counted }
}

const model = () =>
  new Sequential({
    norm: new BatchNorm({ name: 'norm', channels: 2 }),
    last: new Linear({ name: 'last', inputs: 2, outputs: 3 }),
  })

it('BatchNorm communicates with the replicas that the pass names', async () => {
  await runWorld({ size: 1 }, async (world) => {
    const { seen, group } = counting(world)
    const whole = wholeModel(model(), { optimizer: optimizer() })
    const pass = { training: true, step: 0, replicas: [group] }
    await inPass(pass, () => whole.forwardBackward(batch(4)))
    expect(seen).toEqual(['forward', 'backward'])
    await inPass(pass, () => whole.step(batch(4)))
    expect(seen.length).toBe(4)
    await whole.step(batch(4))
    expect(seen.length).toBe(4)
    whole.dispose()
  })
})

it('BatchNorm takes the statistics of the other ranks on a rank without examples', async () => {
  await runWorld({ size: 1 }, (world) => {
    // Two examples with the means 1 and 5 and the sums of squares 2 and 4.
    const other = [2, 1, 5, 2, 4]
    const group = new Proxy(world, {
      get: (target, name): unknown => {
        if (name === 'size') return 2
        if (name !== 'allGatherSync') return Reflect.get(target, name, target)
        return (all: Float64Array, own: Float64Array) => {
          all.set(own)
          all.set(other, own.length)
        }
      },
    })
    const norm = new BatchNorm({ name: 'norm', channels: 2 })
    const x = tf.zeros([0, 2])
    const pass = { training: true, step: 0, replicas: [group] }
    const y = inPass(pass, () => tf.tidy(() => norm.forward(x)))
    const [mean, variance] = norm.buffers.map(({ value }) => [...value.dataSync()])
    expect(mean![0]).toBeCloseTo(0.1, 6)
    expect(mean![1]).toBeCloseTo(0.5, 6)
    expect(variance![0]).toBeCloseTo(0.9 + 0.2, 6)
    expect(variance![1]).toBeCloseTo(0.9 + 0.4, 6)
    tf.dispose([x, y])
    return Promise.resolve()
  })
})

it('forwardBackward makes equally many passes on all replicas of a model that communicates', async () => {
  const passes = await runWorld({ size: 2 }, async (world) => {
    let passes = 0
    const module = new Linear({ name: 'l', inputs: 2, outputs: 3 })
    const forward = (x: ReturnType<typeof tf.ones>) => {
      passes++
      return module.forward(x)
    }
    const { parameters } = module
    const model = { parameters, forward, communicates: true }
    const whole = wholeModel(model, { accumulate: 3 })
    const replica = await dataParallel(whole, world)
    await whole.forwardBackward(batch(1 + 2 * world.rank), replica.onGradient)
    await replica.gradients()
    replica.dispose()
    return passes
  })
  expect(passes).toEqual([3, 3])
})
