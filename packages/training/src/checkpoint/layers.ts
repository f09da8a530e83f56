import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../backend/host-memory.ts'
import type { Shard } from '../nn/parameter.ts'
import { partOfParameter, partSize, type Piece, type PieceOwner } from './piece.ts'

/** A weight of a tf.layers model. */
interface LayerWeight {
  readonly originalName: string
  readonly shape: readonly (number | null)[]
  /** Where ranks share the layer; see `parallelizeLayers`. */
  readonly shard?: Shard
  read(): Tensor
  write(value: Tensor): unknown
}

/** What is needed of a tf.LayersModel. */
export interface LayersModelLike {
  readonly layers: readonly { readonly name: string; readonly weights: readonly LayerWeight[] }[]
}

/** Where a weight is in a tf.layers model. */
export interface LayerPlace {
  /** Name of the layer; TensorFlow.js makes one up where you give none, another for each model. */
  readonly layer: string
  /** Its number among the layers that have weights. */
  readonly index: number
  /** `kernel`, `bias`, `gamma`, ... */
  readonly weight: string
}

export type LayerNames = (place: LayerPlace) => string

/**
 * The weights of a tf.layers model for `saveCheckpoint` and `loadCheckpoint`, all of them on each rank,
 * so that such a model and others of the same names share checkpoints.
 *
 * @param names - default: `<layer>.<weight>`, for layers that you name; `denseNames` for those of
 *   `shardedMLP`
 *
 * @example
 * await saveCheckpoint('checkpoints', { model: ownerOfLayers(model), step })
 */
export function ownerOfLayers(
  { layers }: LayersModelLike,
  names: LayerNames = ({ layer, weight }) => `${layer}.${weight}`,
): PieceOwner {
  const weights = layers
    .filter((layer) => layer.weights.length > 0)
    .flatMap(({ name: layer, weights: own }, index) =>
      own.map((variable) => {
        const weight = variable.originalName.split('/').at(-1)!
        const shape = variable.shape as readonly number[]
        const { shard } = variable
        const cut = shard === undefined ? {} : { shard }
        return {
          variable,
          shape,
          part: partOfParameter({ name: names({ layer, index, weight }), shape, ...cut }),
        }
      }),
    )
  return {
    pieces: async () =>
      await Promise.all(
        weights.map(async ({ variable, part }): Promise<Piece> => {
          const values = new Float32Array(partSize(part))
          await writeTo(variable.read(), values)
          return { ...part, values }
        }),
      ),
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

/** Names of `shardedMLP` for the weights of dense layers: `layers.0.weight`, `layers.0.bias`. */
export const denseNames: LayerNames = ({ index, weight }) =>
  `layers.${String(index)}.${weight === 'kernel' ? 'weight' : weight}`
