import type { Shard, Tensor } from '@tsrun/training'

/** A weight of tf.layers, which calls it a `LayerVariable`. */
export interface LayersVariable {
  /** Unique in the process. */
  readonly name: string
  readonly originalName: string
  readonly shape: readonly (number | null)[]
  /** Present if ranks share the layer; see `parallelizeLayers`. */
  readonly shard?: Shard
  read(): Tensor
  write(value: Tensor): unknown
}

interface LayersLayer {
  readonly name: string
  readonly weights: readonly LayersVariable[]
  readonly trainableWeights: readonly LayersVariable[]
  /** The terms that regularizers add to the loss. */
  readonly losses?: readonly unknown[]
  getClassName(): string
  getConfig(): Readonly<Record<string, unknown>>
}

/** The properties of a `tf.LayersModel` that this package uses. */
export interface LayersModel {
  readonly layers: readonly LayersLayer[]
  /** In the order in which `fit` trains them. */
  readonly trainableWeights: readonly { readonly name: string }[]
  apply(x: Tensor, options?: { readonly training?: boolean }): unknown
  getClassName(): string
}

/** The place of a weight in a tf.layers model. */
export interface LayerPlace {
  /** The name of the layer. TensorFlow.js gives unnamed layers a different name in each model. */
  readonly layer: string
  /** The index of the layer among the layers with weights. */
  readonly index: number
  /**
   * `kernel`, `bias`, `gamma`, ... If a layer has several weights with one name, as in bidirectional
   * layers and nested models, the second one is `kernel_1`, and so on.
   */
  readonly weight: string
}

/** A weight of a model, with its place. */
export interface LayersWeight extends LayerPlace {
  /** `layers.<index among all layers>.<weight>`; names of tf.layers are numbered per process. */
  readonly name: string
  readonly shape: readonly number[]
  readonly variable: LayersVariable
  readonly isTrained: boolean
}

/** Returns all weights of a model, layer by layer, trained weights before the others. */
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
