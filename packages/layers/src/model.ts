import type { Shard, Tensor } from '@tsrun/training'

/** A weight of a tf.layers model. tf.layers calls this class `LayerVariable`. */
export interface LayersVariable {
  /** The name of the weight, unique in the process. */
  readonly name: string
  readonly originalName: string
  readonly shape: readonly (number | null)[]
  /** The part of the whole weight that this rank has, if ranks share the layer; see `parallelizeLayers`. */
  readonly shard?: Shard
  read(): Tensor
  write(value: Tensor): unknown
}

interface LayersLayer {
  readonly name: string
  readonly weights: readonly LayersVariable[]
  readonly trainableWeights: readonly LayersVariable[]
  /** The regularization terms that are added to the loss. */
  readonly losses?: readonly unknown[]
  getClassName(): string
  getConfig(): Readonly<Record<string, unknown>>
}

/** The properties of a `tf.LayersModel` that this package uses. */
export interface LayersModel {
  readonly layers: readonly LayersLayer[]
  /** The trained weights, in the order in which `fit` trains them. */
  readonly trainableWeights: readonly { readonly name: string }[]
  apply(x: Tensor, options?: { readonly training?: boolean }): unknown
  getClassName(): string
}

/** The place of a weight in a tf.layers model. */
export interface LayerPlace {
  /**
   * The name of the layer. TensorFlow.js numbers unnamed layers per process, so their names differ
   * between models.
   */
  readonly layer: string
  /** The index of the layer, not counting layers without weights. */
  readonly index: number
  /**
   * The name of the weight in its layer: `kernel`, `bias`, `gamma` and so on. If a layer has several
   * weights with one name, as in bidirectional layers and nested models, the second one is `kernel_1`.
   */
  readonly weight: string
}

/** A weight of a model, with its place in the model. */
export interface LayersWeight extends LayerPlace {
  /**
   * The name `layers.<index>.<weight>`, where `index` counts all layers. The names of tf.layers are
   * unsuitable, because they are numbered per process.
   */
  readonly name: string
  readonly shape: number[]
  readonly variable: LayersVariable
  readonly isTrained: boolean
}

/** Returns all weights of a model, layer by layer. In each layer, trained weights come first. */
export function weightsOf({ layers }: LayersModel): LayersWeight[] {
  let index = 0
  return layers.flatMap(({ name: layer, weights, trainableWeights }, position) => {
    if (weights.length === 0) return []
    const counts = new Map<string, number>()
    const place = { layer, index: index++ }
    return weights.map((variable) => {
      const own = variable.originalName.split('/').at(-1)!
      const count = counts.get(own) ?? 0
      counts.set(own, count + 1)
      const weight = count === 0 ? own : `${own}_${count}`
      const name = `layers.${position}.${weight}`
      const isTrained = trainableWeights.includes(variable)
      return { ...place, weight, name, shape: variable.shape as number[], variable, isTrained }
    })
  })
}
