import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Linear } from '../../nn/linear.ts'
import type { Module } from '../../nn/module.ts'
import { matchName } from '../../nn/name-patterns.ts'
import type { Parameter } from '../../nn/parameter.ts'
import {
  ColumnParallelLinear,
  RowParallelLinear,
  type ColumnParallelOptions,
  type RowParallelOptions,
} from './layers.ts'

/** How a layer is shared among the ranks of a group. */
export type ParallelStyle = (layer: Linear, group: ProcessGroup) => Module

/** By columns of the weight: every rank has all inputs and some outputs. */
export function columnParallel(options: ColumnParallelOptions = {}): ParallelStyle {
  return (layer, group) => new ColumnParallelLinear(layer, group, options)
}

/** By rows of the weight: every rank has some inputs and, after a sum, all outputs. */
export function rowParallel(options: RowParallelOptions = {}): ParallelStyle {
  return (layer, group) => new RowParallelLinear(layer, group, options)
}

/**
 * By name of a layer, `*` for one part between dots and `**` for any number of them: the first that
 * fits decides.
 */
export type ParallelPlan = Readonly<Record<string, ParallelStyle>>

/** A model of linear layers in a row. */
export interface LinearLayers extends Module {
  readonly layers: readonly Linear[]
}

/**
 * Shares the layers of a model among the ranks of a group (Megatron-LM's tensor parallelism; as
 * torch's parallelize_module). Parameters keep their names; each rank holds its part of those that the
 * plan names, and the others in full. The model that was given must not be used any more.
 *
 * The passes block inside collectives: all ranks run the same layers in the same order.
 *
 * @example
 * const model = shardedMLP({ layers: 2 }).build()
 * const mine = parallelize(model, { 'layers.0': columnParallel(), 'layers.1': rowParallel() }, group)
 *
 * @throws ERR_TSR_ARGUMENT when the plan names no layer, or a layer cannot be divided
 */
export function parallelize(model: LinearLayers, plan: ParallelPlan, group: ProcessGroup): Module {
  const names = model.layers.map(({ weight }) => weight.name.replace(/\.weight$/, ''))
  const entries = Object.entries(plan).map(([glob, style]) => ({
    glob,
    fits: matchName(glob),
    style,
  }))
  for (const { glob, fits } of entries) {
    if (names.some(fits)) continue
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'plan',
      value: glob,
      expected: `names of layers: ${names.join(', ')}`,
    })
  }
  const layers = model.layers.map((layer, i) => {
    const entry = entries.find(({ fits }) => fits(names[i]!))
    return entry === undefined ? layer : entry.style(layer, group)
  })
  return new LayersInARow(layers)
}

class LayersInARow implements Module {
  readonly parameters: readonly Parameter[]
  readonly #layers: readonly Module[]

  constructor(layers: readonly Module[]) {
    this.#layers = layers
    this.parameters = layers.flatMap((layer) => layer.parameters)
  }

  forward(x: Tensor): Tensor {
    return this.#layers.reduce((h, layer) => layer.forward(h), x)
  }
}
