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
