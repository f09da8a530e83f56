import { refuseUnknown, shown, tsrError } from '@tsrun/core'
import { leastLargest } from './balance.ts'

/** Layers `from` up to, but without, `to`. */
export interface LayerRange {
  readonly from: number
  readonly to: number
}

export interface SplitOptions {
  /** How much each layer costs, in any unit: time, see `measureCosts`, or bytes. */
  readonly costs?: readonly number[]
}

const KNOWN = Object.keys({ costs: true } satisfies Record<keyof SplitOptions, true>)

/**
 * Cuts `layers` layers into `stages` runs of neighbours, as even as can be; the first stages take
 * one more when they don't divide. With costs, so that the stage that costs most costs as little as
 * can be, and the others are as even as that allows.
 *
 * @example
 * splitLayers(16, 3) // [{ from: 0, to: 6 }, { from: 6, to: 11 }, { from: 11, to: 16 }]
 * splitLayers(4, 2, { costs: [1, 1, 1, 3] }) // [{ from: 0, to: 3 }, { from: 3, to: 4 }]
 *
 * @throws ERR_TSR_STAGES when there are more stages than layers; ERR_TSR_ARGUMENT
 */
export function splitLayers(
  layers: number,
  stages: number,
  options: SplitOptions = {},
): LayerRange[] {
  refuseUnknown(options, KNOWN)
  const { costs } = options
  for (const [name, value] of Object.entries({ layers, stages })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a whole number from 1' })
    }
  }
  if (stages > layers) throw tsrError('ERR_TSR_STAGES', { layers, stages })
  if (costs !== undefined) {
    requireCosts(costs, layers)
    return rangesOf(leastLargest(costs, stages))
  }
  const each = Math.floor(layers / stages)
  const more = layers % stages
  return rangesOf(Array.from({ length: stages }, (_, stage) => each + (stage < more ? 1 : 0)))
}

/** How the layers go to the stages: how many each takes, or what each layer costs. */
export type Split = readonly number[] | { readonly costs: readonly number[] }

/**
 * `splitLayers` for a split that was given, or the even one.
 *
 * @throws ERR_TSR_ARGUMENT when the numbers are not one a stage, from 1, all layers together; when it
 *   is neither these nor costs
 */
export function splitAs(split: Split | undefined, layers: number, stages: number): LayerRange[] {
  if (split === undefined) return splitLayers(layers, stages)
  if (!isSizes(split)) {
    requireSplit(split)
    return splitLayers(layers, stages, split)
  }
  const total = split.reduce((sum, size) => sum + size, 0)
  const areSizes = split.every((size) => Number.isSafeInteger(size) && size >= 1)
  if (areSizes && split.length === stages && total === layers) return rangesOf(split)
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'split',
    value: JSON.stringify(split),
    expected: `${stages} numbers of layers from 1, ${layers} together`,
  })
}

function requireSplit(split: unknown): void {
  const isObject = typeof split === 'object' && split !== null
  if (isObject && Object.keys(split).join() === 'costs') return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'split',
    value: shown(split),
    expected: 'numbers of layers, one a stage, or { costs }, one a layer',
  })
}

function isSizes(split: Split): split is readonly number[] {
  return Array.isArray(split)
}

function rangesOf(sizes: readonly number[]): LayerRange[] {
  let from = 0
  return sizes.map((size) => ({ from, to: (from += size) }))
}

function requireCosts(costs: readonly number[], layers: number): void {
  const fits = Array.isArray(costs) && costs.length === layers
  if (fits && costs.every((cost) => cost >= 0 && cost < Infinity)) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'costs',
    value: JSON.stringify(costs),
    expected: `${layers} numbers of 0 or more, one a layer`,
  })
}
