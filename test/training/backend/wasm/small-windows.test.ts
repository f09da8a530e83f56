import type { Rank, Tensor4D, Tensor5D } from '@tensorflow/tfjs-core'
import { loadBackend, tf } from '@tsrun/training'
import { describeSmallImages, isUsual } from '../support/small-images.ts'

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
  'the gradient of 3-D max pooling is refused for windows of other heights than widths on %s',
  async (backend) => {
    await loadBackend(backend)
    const x = tf.ones<Rank.R5>([1, 2, 2, 2, 1])
    const gradient = (size: number | [number, number, number]) =>
      tf.grad((volume) => tf.maxPool3d(volume as Tensor5D, size, 1, 'valid'))(x)
    expect(gradient(2).size).toBe(8)
    expect(gradient([1, 2, 2]).size).toBe(8)
    expect(() => gradient([2, 1, 2])).toThrow('filterSize is 2 x 1 x 2')
  },
)

describeSmallImages(isUsual)
