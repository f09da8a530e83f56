import { loadBackend, tf } from '@tsrun/training'
import { describeSmallImages, isUsual } from '../support/small-images.ts'

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

describeSmallImages(isUsual)
