import { runWorld } from '@tsrun/distributed'
import {
  columnParallel,
  disposeModule,
  Linear,
  loadBackend,
  parallelize,
  recordModule,
  recordSegments,
  rowParallel,
  shardedMLP,
  tf,
  type Exchange,
  type Module,
  type Parameter,
  type Tensor,
} from '@tsrun/training'
import { killLeftovers } from '../../../launcher/support/tsrun.ts'
import { failure } from '../support/failure.ts'
import { describeSegments } from './support/segments.ts'

afterEach(killLeftovers)
beforeAll(() => loadBackend('wasm'))

// 4 ranks are in record-segments.slow.test.ts
describeSegments(2)

const both = { needsInputGradient: true }

/** Identity, as an exchange in a group of one. */
const identity: Exchange = {
  forward: (x) => Promise.resolve(tf.keep(tf.clone(x))),
  backward: (dy) => Promise.resolve(tf.keep(tf.clone(dy))),
}

/** Two layers with exchanges around the second. */
function model(first: Module, second: Module, exchange = identity): Module {
  return {
    parameters: [...new Set([...first.parameters, ...second.parameters])],
    forward: (x) => second.forward(first.forward(x)),
    segments: () => [first, exchange, second, exchange],
  }
}

const free = (_: Parameter, gradient: Tensor): void => {
  gradient.dispose()
}

const network = () => shardedMLP({ layers: 2, inputs: 4, hidden: 4, outputs: 2 }).build()
const linear = (name: string) => new Linear({ name, inputs: 4, outputs: 4, activation: 'relu' })

describe('recordSegments', () => {
  let tensors: number
  beforeEach(() => (tensors = tf.memory().numTensors))
  afterEach(() => {
    expect(tf.memory().numTensors).toBe(tensors)
  })

  async function withLayers(use: (first: Linear, second: Linear, x: Tensor) => Promise<void>) {
    const [first, second] = [linear('first'), linear('second')]
    const x = tf.randomUniform([3, 4], -1, 1, 'float32', 5)
    await use(first, second, x)
    tf.dispose(x)
    disposeModule(first)
    disposeModule(second)
  }

  it('awaits messages, so that ranks in one process can shard a network', async () => {
    const values = await runWorld({ size: 2, seed: 1 }, async (group) => {
      const plan = { 'layers.0': columnParallel(), 'layers.1': rowParallel() }
      const shared = parallelize(network(), plan, group)
      const x = tf.ones([1, 4])
      const recording = await recordSegments(shared, x, both)
      const dy = tf.ones([1, 2])
      const dx = await recording.backward(dy, free)
      const own = [...recording.value.dataSync(), ...dx!.dataSync()]
      recording.dispose()
      tf.dispose([x, dy, dx!])
      disposeModule(shared)
      return own
    })
    expect(values[0]).toHaveLength(2 + 4)
    expect(values[0]).toEqual(values[1])
  })

  it('names the layer if a rank has left, and frees everything', async () => {
    const [survivor] = await runWorld({ size: 2, seed: 1 }, async (world) => {
      let lent = 0
      const group = new Proxy(world, {
        get(target, key) {
          const value: unknown = Reflect.get(target, key)
          if (typeof value !== 'function') return value
          if (key === 'alloc' || key === 'allocUnsafe') lent++
          if (key === 'free') lent--
          return value.bind(target) as unknown
        },
      })
      const shared = parallelize(
        network(),
        { 'layers.0': columnParallel({ gather: 'replicated' }) },
        group,
      )
      const x = tf.ones([1, 4])
      const recording = group.rank === 0 ? recordSegments(shared, x, both) : group.destroy()
      const error: unknown = await recording.then(
        () => undefined,
        (failed: unknown) => failed,
      )
      x.dispose()
      disposeModule(shared)
      return { error, lent }
    })
    const error = failure('ERR_TSR_PEER_LEFT', /^layers\.0: output/)
    expect(survivor).toEqual({ error, lent: 0 })
  })

  it('reports a parameter of two segments once, with the sum', async () => {
    await withLayers(async (layer, _, x) => {
      const collect = (calls: unknown[][]) => (parameter: Parameter, gradient: Tensor) => {
        calls.push([parameter.name, ...gradient.dataSync()])
        gradient.dispose()
      }
      const [wanted, found]: unknown[][][] = [[], []]
      const whole = recordModule(model(layer, layer), x, both)
      const dx = whole.backward(x, collect(wanted!))!
      const cut = await recordSegments(model(layer, layer), x, both)
      const dxOfCut = (await cut.backward(x, collect(found!)))!
      expect(cut.value.dataSync()).toEqual(whole.value.dataSync())
      expect(dxOfCut.dataSync()).toEqual(dx.dataSync())
      expect(wanted).toHaveLength(2)
      expect(found!.sort()).toEqual(wanted!.sort())
      tf.dispose([dx, dxOfCut])
      whole.dispose()
      cut.dispose()
    })
  })

  it('runs backward only once, and only from a gradient with the shape of the output', async () => {
    await withLayers(async (first, second, x) => {
      const recording = await recordSegments(model(first, second), x, both)
      const wrong = tf.ones([3, 5])
      await expect(recording.backward(wrong, free)).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT', /dy is a tensor of shape \[3, 5\]/),
      )
      tf.dispose([wrong, (await recording.backward(x, free))!])
      const again = failure('ERR_TSR_BACKWARD_TWICE')
      await expect(recording.backward(x, free)).rejects.toEqual(again)
      recording.dispose()
      const given = await recordSegments(model(first, second), x, both)
      given.dispose()
      await expect(given.backward(x, free)).rejects.toEqual(again)
    })
  })

  it('frees everything when an exchange or the listener fails', async () => {
    const boom = new Error('boom')
    const failing = (): Promise<Tensor> => Promise.reject(boom)
    await withLayers(async (first, second, x) => {
      const stuck = model(first, second, { ...identity, forward: failing })
      await expect(recordSegments(stuck, x, both)).rejects.toBe(boom)
      // of the first call the callee owns the gradient
      const refuse = (_: Parameter, gradient: Tensor): void => {
        gradient.dispose()
        throw boom
      }
      const broken = model(first, second, { ...identity, backward: failing })
      for (const each of [broken, model(first, second)]) {
        const recording = await recordSegments(each, x, both)
        await expect(recording.backward(x, refuse)).rejects.toBe(boom)
        recording.dispose()
      }
    })
  })
})
