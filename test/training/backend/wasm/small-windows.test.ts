import type { Rank, Tensor, Tensor4D } from '@tensorflow/tfjs-core'
import { loadBackend, tf } from '@tsrun/training'
import { describeSmallImages, differ, isUsual } from '../support/small-images.ts'
import { flatVolumes, run } from '../support/small-windows.ts'

it.each(['cpu', 'wasm'] as const)(
  'pooling windows inside the padding have no value on %s',
  async (backend) => {
    await loadBackend(backend)
    const x = tf.tensor4d([1, 2, 3, 4], [1, 2, 2, 1])
    const pad: [number, number][] = [[0, 0], [1, 0], [0, 1], [0, 0]] // prettier-ignore
    const [largest, mean] = [tf.maxPool, tf.avgPool].map((pool) => [
      ...pool(x, 1, 2, pad as Parameters<typeof tf.maxPool>[3]).dataSync(),
    ])
    expect(largest).toEqual([-Infinity, -Infinity, 3, -Infinity])
    expect(mean).toEqual([NaN, NaN, 3, NaN])
  },
)

it.each<[shape: [number, number, number, number], size: number]>([
  [[1, 1, 1, 1], 2],
  [[1, 2, 5, 4], 3],
  [[2, 5, 2, 4], 3],
])('images %j have no windows of size %i on wasm', async (shape, size) => {
  await loadBackend('wasm')
  const x = tf.ones<Rank.R4>(shape)
  const filter = tf.ones<Rank.R4>([size, size, shape[3], 1])
  const operations: ((image: Tensor4D, weights: Tensor4D) => Tensor4D)[] = [
    (image) => tf.maxPool(image, size, 2, 'valid'),
    (image) => tf.avgPool(image, size, 2, 'valid'),
    (image, weights) => tf.depthwiseConv2d(image, weights, 2, 'valid'),
    (image, weights) => tf.conv2d(image, weights, 2, 'valid'),
  ]
  for (const operation of operations) {
    expect(operation(x, filter).size).toBe(0)
    const [dx] = tf.grads((image, weights) =>
      tf.add(tf.sum(operation(image as Tensor4D, weights as Tensor4D)), tf.sum(weights)),
    )([x, filter])
    expect([...dx!.dataSync()]).toEqual(new Array(x.size).fill(0))
  }
})

it.each([1, 2])(
  'windows of %i channels that need several parts have the values of cpu',
  async (channels) => {
    const compute = async (backend: 'cpu' | 'wasm') => {
      await loadBackend(backend)
      const whole = (shape: number[], seed: number) =>
        tf.cast(tf.randomUniform(shape, -9, 9, 'int32', seed), 'float32')
      const [x, filter] = [whole([3, 70, 60, channels], 1), whole([3, 3, channels, 3], 2)]
      const y = (image: Tensor, weights: Tensor) =>
        tf.conv2d(image as Tensor4D, weights as Tensor4D, 1, 'same')
      const dy = whole([3, 70, 60, 3], 3)
      return [y(x, filter), ...tf.grads(y)([x, filter], dy)].map((result) => [...result.dataSync()])
    }
    expect(await compute('wasm')).toEqual(await compute('cpu'))
  },
)

it('gradients of max pooling are written completely into memory that contained NaN on wasm', async () => {
  await loadBackend('wasm')
  for (const channels of [1, 3, 4, 5, 8, 16, 17]) {
    for (const image of [
      [4, 6],
      [5, 6],
      [4, 7],
    ])
      for (const pad of ['same', 'valid', 1] as const) {
        for (const strides of [
          [2, 2],
          [1, 3],
          [3, 1],
          [2, 3],
        ] as [number, number][]) {
          const shape = [3, ...image, channels]
          const gradient = (backend: string) => {
            tf.fill(shape, NaN).dispose()
            const x = tf.randomUniform(shape, -1, 1, 'float32', 1)
            const dx = tf.grad((y) => tf.maxPool(y as Tensor4D, 2, strides, pad))(x)
            return { backend, values: [...dx.dataSync()] }
          }
          const found = tf.tidy(() => gradient('wasm').values)
          await loadBackend('cpu')
          const expected = tf.tidy(() => gradient('cpu').values)
          await loadBackend('wasm')
          expect(found).toEqual(expected)
        }
      }
  }
})

it('windows larger than an image and its padding are refused on wasm', async () => {
  await loadBackend('wasm')
  const x = tf.ones<Rank.R4>([1, 1, 1, 2])
  const filter = tf.ones<Rank.R4>([5, 5, 2, 1])
  for (const operation of [
    () => tf.maxPool(x, 5, 1, 'valid'),
    () => tf.avgPool(x, 5, 1, 'valid'),
    () => tf.depthwiseConv2d(x, filter, 1, 'valid'),
    () => tf.conv2d(x, filter, 1, 'valid'),
  ])
    expect(operation).toThrow('the window is 5 x 5; expected one that fits images of 1 x 1')
})

it.each(['cpu', 'wasm'] as const)(
  'volumes of one layer have the values and gradients of images on %s',
  async (backend) => {
    await loadBackend(backend)
    const wrong = [...flatVolumes()].filter((pair) => {
      const [image, volume] = pair.map(run)
      return (
        differ(image!.values, volume!.values) ||
        image!.gradients.some((gradient, k) => differ(gradient, volume!.gradients[k]!))
      )
    })
    expect(wrong.map(([{ title }]) => title)).toEqual([])
  },
)

describeSmallImages(isUsual)
