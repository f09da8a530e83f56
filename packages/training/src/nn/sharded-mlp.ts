import { anything, count, declareOptions, finite, type Rules } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Module } from '../model/module.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import { checkRange } from './initialize.ts'
import { recordLinearStack } from './linear-stack.ts'
import { Linear } from './linear.ts'
import { ModuleChain, stackOf } from './sequential.ts'

/** Options of `shardedMLP`. */
export interface ShardedMLPOptions {
  /** The number of linear layers; default 16. */
  readonly layers?: number
  /** The number of values of an example; default 784, an image of 28 x 28. */
  readonly inputs?: number
  /** The width of the hidden layers; default 128. */
  readonly hidden?: number
  /** The number of classes; default 10. */
  readonly outputs?: number
  /** The seed of the initial values, which also depend on the names of the parameters; default 0. */
  readonly seed?: number
  /** Builds only the layers [from, to); default: all layers. */
  readonly range?: readonly [from: number, to: number]
}

const size = count({ from: 1 })

const readOptions = declareOptions({
  layers: size.default(16),
  inputs: size.default(784),
  hidden: size.default(128),
  outputs: size.default(10),
  seed: finite().default(0),
  range: anything<readonly [number, number]>(),
} satisfies Rules<ShardedMLPOptions>)

/**
 * A multi-layer perceptron that can be built in parts. There is a ReLU between any two linear layers.
 *
 * A part [from, to) allocates only its own parameters (`layers.<index>.weight`, `layers.<index>.bias`).
 * They have the same names and bitwise the same values as in the whole model.
 *
 * @throws ERR_TSR_ARGUMENT when a size or the range is invalid, or for an unknown option
 */
export class ShardedMLP extends ModuleChain {
  readonly range: readonly [from: number, to: number]

  constructor(options: ShardedMLPOptions = {}) {
    const { layers, inputs, hidden, outputs, seed, range } = readOptions(options)
    const [from, to] = checkRange(range, layers)
    const names = Array.from({ length: to - from }, (_, i) => `layers.${from + i}`)
    const children = names.map((name, i): [string, Module] => {
      const last = from + i === layers - 1
      const layer = new Linear({
        name,
        inputs: from + i === 0 ? inputs : hidden,
        outputs: last ? outputs : hidden,
        activation: last ? 'linear' : 'relu',
        seed,
      })
      return [name, layer]
    })
    super(Object.fromEntries(children))
    this.range = [from, to]
  }

  record(x: Tensor, options: RecordOptions): Recording {
    return recordLinearStack(this, stackOf(this.layers), x, options)
  }
}

/**
 * A recipe for a `ShardedMLP`. It allocates nothing until the whole model or a slice is built.
 *
 * @throws ERR_TSR_ARGUMENT for an invalid or unknown option
 */
export function shardedMLP(options: Omit<ShardedMLPOptions, 'range'> = {}) {
  const { layers } = readOptions(options)
  return {
    layers,
    build: () => new ShardedMLP(options),
    slice: (from: number, to: number) => new ShardedMLP({ ...options, range: [from, to] }),
  }
}
