import { argumentError } from '@tsrun/core'
import { partOfParameter, tensorFrom, type PieceOwner } from '@tsrun/training'
import { holdTensor } from '@tsrun/training/parts'
import { weightsOf, type LayerPlace, type LayersModel } from './model.ts'

/** Names a weight of a tf.layers model in checkpoints. */
export type LayerNames = (place: LayerPlace) => string

/**
 * Makes a checkpoint owner of the weights of a tf.layers model, for `saveCheckpoint` and
 * `loadCheckpoint`. Checkpoints are interchangeable with those of any model that has the same
 * parameter names.
 *
 * @param names - the name of each weight in checkpoints. Default: `<layer>.<weight>`, for layers to
 *   which you gave names. `denseNames` gives the names of `shardedMLP`
 * @throws ERR_TSR_ARGUMENT when two weights get the same name
 *
 * @example
 * await saveCheckpoint('checkpoints', { model: ownerOfLayers(model), step })
 */
export function ownerOfLayers(
  model: LayersModel,
  names: LayerNames = ({ layer, weight }) => `${layer}.${weight}`,
): PieceOwner {
  const taken = new Set<string>()
  const weights = weightsOf(model).map(({ layer, index, weight, shape, variable }) => {
    const name = names({ layer, index, weight })
    if (taken.size === taken.add(name).size) {
      throw argumentError('names', `${name} for two weights`, 'a different name for each weight')
    }
    const { shard } = variable
    return { variable, shape, part: partOfParameter({ name, shape, ...(shard && { shard }) }) }
  })
  return {
    pieces: () =>
      weights.map(({ variable, part }) => ({ ...part, values: holdTensor(variable.read()) })),
    parts: () => weights.map(({ part }) => part),
    load(pieces) {
      for (const [i, { variable, shape }] of weights.entries()) {
        const value = tensorFrom(pieces[i]!.values as Float32Array, shape)
        variable.write(value)
        value.dispose()
      }
    },
  }
}

/** Names the weights of dense layers as `shardedMLP` does: `layers.0.weight`, `layers.0.bias`. */
export const denseNames: LayerNames = ({ index, weight }) =>
  `layers.${index}.${weight === 'kernel' ? 'weight' : weight}`
