import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { generator } from '../../random/generator.ts'

/** What is used of a tf.layers layer that drops values at random. */
interface RandomLayer {
  readonly name: string
  getClassName(): string
  seed?: number
  call(inputs: unknown, options: unknown): Tensor | Tensor[]
}

const DROPOUT = new Set(['Dropout', 'SpatialDropout1D'])
const NOISE = new Set(['GaussianNoise', 'GaussianDropout', 'AlphaDropout'])

/**
 * Lets a layer draw the same on all ranks of a group, from its name and the number of the call: what
 * goes into layers that are shared has to be the same on all of them. A seed of the user's stays.
 *
 * @throws ERR_TSR_ARGUMENT for noise that takes no seed
 */
export function drawAlike(layer: RandomLayer): void {
  const kind = layer.getClassName()
  if (NOISE.has(kind)) {
    const expected = 'no layer of random noise, which would differ from rank to rank'
    throw tsrError('ERR_TSR_ARGUMENT', { name: `layer ${layer.name}`, value: kind, expected })
  }
  if (!DROPOUT.has(kind) || typeof layer.seed === 'number') return
  const draw = generator(layer.name, 0)
  const call = layer.call.bind(layer)
  layer.call = (inputs, options) => {
    layer.seed = draw()
    try {
      return call(inputs, options)
    } finally {
      delete layer.seed
    }
  }
}
