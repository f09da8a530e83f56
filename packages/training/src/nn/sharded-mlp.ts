import { anything, count, declareOptions, finite, type Rules } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { record } from '../autograd/record.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import { recordLinearStack } from './linear-stack.ts'
import { checkRange } from './initialize.ts'
import { isStackable, Linear } from './linear.ts'
import { areRepeatable, parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'

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

const readOptions = declareOptions({
  layers: count({ from: 1 }).default(16),
  inputs: count({ from: 1 }).default(784),
  hidden: count({ from: 1 }).default(128),
  outputs: count({ from: 1 }).default(10),
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
export class ShardedMLP implements Module {
  readonly range: readonly [from: number, to: number]
  /** The layers by name: `layers.<index>`. */
  readonly children: Record<string, Module>
  readonly #layers: readonly Linear[]

  constructor(options: ShardedMLPOptions = {}) {
    const { layers, inputs, hidden, outputs, seed, range } = readOptions(options)
    const [from, to] = checkRange(range, layers)
    this.range = [from, to]
    this.#layers = Array.from({ length: to - from }, (_, offset) => {
      const index = from + offset
      const last = index === layers - 1
      return new Linear({
        name: `layers.${String(index)}`,
        inputs: index === 0 ? inputs : hidden,
        outputs: last ? outputs : hidden,
        activation: last ? 'linear' : 'relu',
        seed,
      })
    })
    this.children = Object.fromEntries(
      this.#layers.map((layer, offset) => [`layers.${String(from + offset)}`, layer]),
    )
  }

  get layers(): readonly Module[] {
    return Object.values(this.children)
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  isRepeatable(x?: Tensor): boolean {
    return areRepeatable(this.layers, x)
  }

  /** @param x - [batch, inputs], or [batch, hidden] for a part without the first layer */
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, layer) => layer.forward(h), x)
  }

  record(x: Tensor, options: RecordOptions): Recording {
    const own = this.layers.every((layer, i) => layer === this.#layers[i])
    if (own && this.#layers.every(isStackable)) return recordLinearStack(this.#layers, x, options)
    return record((input) => this.forward(input), x, this.parameters, options)
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
