import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../backend/host-memory.ts'
import type { Shard } from '../model/parameter.ts'
import { partOfParameter, partSize, type Part, type Piece, type PieceOwner } from './piece.ts'

/** A weight of a tf.layers model. */
interface LayerWeight {
  /** One that no other variable of the process has. */
  readonly name: string
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
  /**
   * `kernel`, `bias`, `gamma`, ...; where a layer has several of a name, as those of two directions or
   * of a model in a model, `kernel_1` and so on from the second one on.
   */
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
 * @throws ERR_TSR_ARGUMENT when two weights get the same name
 *
 * @example
 * await saveCheckpoint('checkpoints', { model: ownerOfLayers(model), step })
 */
export function ownerOfLayers(model: LayersModelLike, names?: LayerNames): PieceOwner {
  const weights = placeWeights(model, names)
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

/** A weight of a tf.layers model, and which part of which tensor it is. */
export interface PlacedWeight {
  readonly variable: LayerWeight
  readonly shape: readonly number[]
  readonly part: Part
}

/** @throws ERR_TSR_ARGUMENT when two weights get the same name */
export function placeWeights(
  { layers }: LayersModelLike,
  names: LayerNames = ({ layer, weight }) => `${layer}.${weight}`,
): PlacedWeight[] {
  const weights = layers
    .filter((layer) => layer.weights.length > 0)
    .flatMap(({ name: layer, weights: own }, index) => {
      const counts = new Map<string, number>()
      return own.map((variable) => {
        const weight = numbered(variable.originalName.split('/').at(-1)!, counts)
        const shape = variable.shape as readonly number[]
        const { shard } = variable
        const cut = shard === undefined ? {} : { shard }
        return {
          variable,
          shape,
          part: partOfParameter({ name: names({ layer, index, weight }), shape, ...cut }),
        }
      })
    })
  checkNames(weights.map(({ part }) => part.name))
  return weights
}

function numbered(name: string, counts: Map<string, number>): string {
  const count = counts.get(name) ?? 0
  counts.set(name, count + 1)
  return count === 0 ? name : `${name}_${String(count)}`
}

function checkNames(names: readonly string[]): void {
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  if (twice === undefined) return
  const expected = 'a name of its own for each weight'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'names', value: `${twice} for two`, expected })
}

/** Names of `shardedMLP` for the weights of dense layers: `layers.0.weight`, `layers.0.bias`. */
export const denseNames: LayerNames = ({ index, weight }) =>
  `layers.${String(index)}.${weight === 'kernel' ? 'weight' : weight}`
