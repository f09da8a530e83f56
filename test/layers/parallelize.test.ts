import * as tfjs from '@tensorflow/tfjs'
import { parallelizeLayers } from '@tsrun/layers'
import { columnParallel, loadBackend, tf, type ParallelPlan } from '@tsrun/training'
import { failure } from '../training/parallel/support/failure.ts'
import { onEach } from '../training/parallel/support/on-each.ts'

beforeAll(() => loadBackend('wasm'))

describe('parallelizeLayers', () => {
  const build = () =>
    tfjs.sequential({
      layers: [
        tfjs.layers.dense({ name: 'first', units: 6, inputShape: [4] }),
        tfjs.layers.dropout({ name: 'drop', rate: 0.1 }),
        tfjs.layers.dense({ name: 'last', units: 4, activation: 'softmax' }),
      ],
    })

  it('leaks no tensor of the whole model', async () => {
    const before = tf.memory().numTensors
    await onEach(2, (group) => {
      const model = parallelizeLayers(build(), { first: columnParallel() }, group)
      expect(model.getWeights().map(({ shape }) => shape)).toEqual([[4, 3], [3], [6, 4], [4]])
      model.dispose()
    })
    expect(tf.memory().numTensors).toBe(before)
  })

  it.each<[string, number, ParallelPlan, RegExp]>([
    ['an unknown name', 2, { second: columnParallel() }, /second.*first, drop, last/],
    ['layers that are not dense', 2, { drop: columnParallel() }, /drop.*linear layer/],
    ['units that do not divide', 4, { first: columnParallel() }, /first\.kernel/],
  ])('refuses %s', async (_, size, plan, message) => {
    const errors = await onEach(size, (group) => {
      try {
        parallelizeLayers(build(), plan, group)
        return undefined
      } catch (error) {
        return error
      }
    })
    for (const error of errors) expect(error).toEqual(failure('ERR_TSR_ARGUMENT', message))
  })

  it.each([
    { what: 'a softmax over sharded outputs', options: { activation: 'softmax' as const } },
    { what: 'another activation that needs all outputs', options: { activation: 'logSoftmax' } },
    { what: 'a regularizer of a shard', options: { kernelRegularizer: tfjs.regularizers.l2() } },
    {
      what: 'a constraint on a shard',
      options: { kernelConstraint: tfjs.constraints.maxNorm({}) },
    },
  ])('refuses $what', async ({ options }) => {
    const before = tf.memory().numTensors
    const [error] = await onEach(2, (group) => {
      const layer = { name: 'last', units: 4, inputShape: [4], ...options }
      const model = tfjs.sequential({ layers: [tfjs.layers.dense(layer as never)] })
      try {
        return parallelizeLayers(model, { last: columnParallel() }, group)
      } catch (failed) {
        return failed
      } finally {
        model.dispose()
      }
    })
    const [key] = Object.keys(options)
    expect(error).toEqual(failure('ERR_TSR_ARGUMENT', new RegExp(`${key!} of last`)))
    expect(tf.memory().numTensors).toBe(before)
  })

  it('drops the same values on all ranks, and different values in each pass', async () => {
    const ranks = await onEach(2, (group) => {
      const model = parallelizeLayers(build(), { first: columnParallel() }, group)
      const dropped = tf.tidy(() =>
        [1, 2].map(() => {
          const y = model.layers[1]!.apply(tf.ones([64]), { training: true }) as tfjs.Tensor
          return [...y.dataSync()]
        }),
      )
      model.dispose()
      return dropped
    })
    expect(ranks[0]).toEqual(ranks[1])
    const [first, second] = ranks[0]!
    expect(first).not.toEqual(second)
    expect(first).toContain(0)
  })

  it('refuses a noise layer whose values would differ between ranks', async () => {
    const [error] = await onEach(2, (group) => {
      const model = tfjs.sequential({
        layers: [
          tfjs.layers.gaussianNoise({ name: 'noise', stddev: 1, inputShape: [4] }),
          tfjs.layers.dense({ name: 'first', units: 6 }),
        ],
      })
      try {
        return parallelizeLayers(model, { first: columnParallel() }, group)
      } catch (failed) {
        return failed
      } finally {
        model.dispose()
      }
    })
    expect(error).toEqual(failure('ERR_TSR_ARGUMENT', /layer noise.*GaussianNoise/))
  })

  it('does not change a model in a group of one rank', async () => {
    await onEach(1, (group) => {
      const model = build()
      parallelizeLayers(model, { first: columnParallel(), last: columnParallel() }, group)
      expect(Object.hasOwn(model.layers[2]!, 'call')).toBe(false)
      model.dispose()
    })
  })
})
