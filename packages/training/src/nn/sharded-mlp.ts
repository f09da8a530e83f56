import { refuseUnknown, shown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkSeed } from '../arguments.ts'
import { record } from '../autograd/record.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import { recordLinearStack } from './linear-stack.ts'
import { Linear } from './linear.ts'
import { parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'

export interface ShardedMLPOptions {
  /** Number of linear layers; default 16. */
  readonly layers?: number
  /** Size of one example; default 784, a 28 x 28 image. */
  readonly inputs?: number
  /** Width of the hidden layers; default 128. */
  readonly hidden?: number
  /** Number of classes; default 10. */
  readonly outputs?: number
  /** Initial values depend on it and on the parameters' names alone; default 0. */
  readonly seed?: number
  /** Build only the layers [from, to); default all. */
  readonly range?: readonly [from: number, to: number]
}

const KNOWN = Object.keys({
  layers: true,
  inputs: true,
  hidden: true,
  outputs: true,
  seed: true,
  range: true,
} satisfies Record<keyof ShardedMLPOptions, true>)

/**
 * A multi-layer perceptron that can be built in parts: linear layers with a ReLU between any two.
 *
 * Part [from, to) holds the same parameters (`layers.<index>.weight`, `layers.<index>.bias`), by
 * name and to the bit, as the whole does, and nothing else is allocated.
 *
 * @throws ERR_TSR_ARGUMENT when a size or the range is impossible, or for an unknown option
 */
export class ShardedMLP implements Module {
  readonly range: readonly [from: number, to: number]
  /** By name: `layers.<index>`. */
  readonly children: Record<string, Module>
  readonly #layers: readonly Linear[]

  constructor(options: ShardedMLPOptions = {}) {
    refuseUnknown(options, KNOWN)
    const { layers = 16, inputs = 784, hidden = 128, outputs = 10, seed = 0 } = options
    checkSeed(seed)
    const [from, to] = options.range ?? [0, layers]
    for (const [name, value] of Object.entries({ layers, inputs, hidden, outputs })) {
      if (!(Number.isInteger(value) && value > 0)) {
        throw tsrError('ERR_TSR_ARGUMENT', {
          name,
          value: shown(value),
          expected: 'a positive integer',
        })
      }
    }
    if (!(
      Number.isInteger(from) &&
      Number.isInteger(to) &&
      0 <= from &&
      from < to &&
      to <= layers
    )) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'range',
        value: `[${String(from)}, ${String(to)})`,
        expected: `a part of [0, ${String(layers)})`,
      })
    }
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

  /** @param x - [batch, inputs], or [batch, hidden] for a part that starts later */
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, layer) => layer.forward(h), x)
  }

  record(x: Tensor, options: RecordOptions): Recording {
    const own = this.layers.every((layer, i) => layer === this.#layers[i])
    if (own) return recordLinearStack(this.#layers, x, options)
    return record((input) => this.forward(input), x, this.parameters, options)
  }
}

/**
 * A recipe for a `ShardedMLP`: allocates nothing until the whole or a slice is built.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function shardedMLP(options: Omit<ShardedMLPOptions, 'range'> = {}) {
  refuseUnknown(options, KNOWN)
  return {
    layers: options.layers ?? 16,
    build: () => new ShardedMLP(options),
    slice: (from: number, to: number) => new ShardedMLP({ ...options, range: [from, to] }),
  }
}
