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

/** The properties of a layer that are used. */
interface LayersLayer {
  readonly name: string
  readonly weights: readonly LayersVariable[]
  readonly trainableWeights: readonly LayersVariable[]
  /** What regularizers add to the loss. */
  readonly losses?: readonly unknown[]
  getClassName(): string
  getConfig(): Readonly<Record<string, unknown>>
}

/** The properties of a `tf.LayersModel` that are used. */
export interface LayersModel {
  readonly layers: readonly LayersLayer[]
  /** In the order in which `fit` trains them. */
  readonly trainableWeights: readonly { readonly name: string }[]
  apply(x: Tensor, options?: { readonly training?: boolean }): unknown
  getClassName(): string
}

/** The place of a weight in a tf.layers model. */
export interface LayerPlace {
  /** The name of the layer. If you give none, TensorFlow.js creates a different one for each model. */
  readonly layer: string
  /** The index of the layer among those that have weights. */
  readonly index: number
  /**
   * `kernel`, `bias`, `gamma`, ... If a layer has several weights of a name, as bidirectional layers and
   * nested models do, the second one is `kernel_1`, and so on.
   */
  readonly weight: string
}

/** A weight of a model, where it is in it. */
export interface LayersWeight extends LayerPlace {
  /** `layers.<index of the layer among all>.<weight>`: tf.layers counts the layers of a process. */
  readonly name: string
  readonly shape: readonly number[]
  readonly variable: LayersVariable
  readonly isTrained: boolean
}

/** All weights of a model, layer by layer, those that are trained before the others. */
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
