import { anything, argumentError, count, declareOptions, list, shown, tsrError } from '@tsrun/core'

/** The layers from index `from` up to, but not including, index `to`. */
export interface LayerRange {
  readonly from: number
  readonly to: number
}

/** Options of `splitLayers`. */
export interface SplitOptions {
  /** The cost of each layer: time, bytes, or any other unit. */
  readonly costs?: readonly number[]
}

const readOptions = declareOptions({ costs: anything<readonly number[]>() })
const atLeastOne = count({ from: 1 })

/**
 * Divides `layers` layers into `stages` consecutive ranges, as equal as possible, with longer ranges
 * first. With costs, the most expensive stage is made as cheap as possible. Then the other stages are
 * made as equal as possible.
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
  const { costs } = readOptions(options)
  atLeastOne.check('layers', layers)
  atLeastOne.check('stages', stages)
  if (stages > layers) throw tsrError('ERR_TSR_STAGES', { layers, stages })
  if (costs !== undefined) {
    requireCosts(costs, layers)
    return rangesOf(leastLargest(costs, stages))
  }
  return rangesOf(equalParts(layers, stages))
}

/** Divides a whole number into parts that are as equal as possible, larger ones first. */
export function equalParts(total: number, parts: number): number[] {
  const each = Math.floor(total / parts)
  return Array.from({ length: parts }, (_, part) => each + (part < total % parts ? 1 : 0))
}

/** How layers are divided among stages: the number of layers of each stage, or the cost of each layer. */
export type Split = readonly number[] | { readonly costs: readonly number[] }

/**
 * Divides layers by the option `split` of a pipeline.
 *
 * @throws ERR_TSR_ARGUMENT when `split` is neither costs nor one positive number of layers per
 *   stage, or when these numbers do not sum to `layers`
 */
export function splitAs(split: Split | undefined, layers: number, stages: number): LayerRange[] {
  if (split === undefined) return splitLayers(layers, stages)
  if ('costs' in Object(split)) return splitLayers(layers, stages, split as SplitOptions)
  const isGood = list(atLeastOne).is(split) && split.length === stages
  if (isGood && split.reduce((sum, size) => sum + size, 0) === layers) return rangesOf(split)
  throw argumentError(
    'split',
    Array.isArray(split) ? JSON.stringify(split) : shown(split),
    `${stages} numbers of layers from 1, ${layers} together, or { costs }, one per layer`,
  )
}

function rangesOf(sizes: readonly number[]): LayerRange[] {
  let from = 0
  return sizes.map((size) => ({ from, to: (from += size) }))
}

function requireCosts(costs: readonly number[], layers: number) {
  const fits = Array.isArray(costs) && costs.length === layers
  if (fits && costs.every((cost) => cost >= 0 && cost < Infinity)) return
  throw argumentError(
    'costs',
    JSON.stringify(costs),
    `${layers} numbers of 0 or more, one per layer`,
  )
}

/**
 * Divides `costs` into `parts` non-empty runs with the smallest possible largest sum. Among such
 * divisions it chooses the one with the least sum of squares, and then the one with longer runs first.
 *
 * It solves the linear partition problem by dynamic programming (Skiena, The Algorithm Design Manual, 10.7) in
 * O(parts x costs^2), first for the smallest largest sum, then for the most equal runs within that limit.
 */
function leastLargest(costs: readonly number[], parts: number) {
  const before = [0]
  for (const cost of costs) before.push(before.at(-1)! + cost)
  const sum = (from: number, to: number) => before[to]! - before[from]!
  const largest = partition(costs.length, parts, (from, to, rest) => Math.max(sum(from, to), rest))
  const limit = largest.value * (1 + ROUNDING)
  return partition(costs.length, parts, (from, to, rest) =>
    sum(from, to) > limit ? Infinity : sum(from, to) ** 2 + rest,
  ).lengths
}

/** Sums whose relative difference is smaller than this count as equal. */
const ROUNDING = 1e-9

/** @param price - returns the price of the run [from, to) and all later runs, which cost `rest` */
function partition(
  count: number,
  parts: number,
  price: (from: number, to: number, rest: number) => number,
) {
  // `best[from]` is the lowest price of the items from index `from`, divided into `runs` runs.
  let best = Array.from({ length: count + 1 }, (_, from) => (from === count ? 0 : Infinity))
  const ends: number[][] = []
  for (let runs = 1; runs <= parts; runs++) {
    const next = Array<number>(count + 1).fill(Infinity)
    const end = Array<number>(count + 1).fill(count)
    for (let from = 0; from <= count - runs; from++) {
      for (let to = count - runs + 1; to > from; to--) {
        const value = price(from, to, best[to]!)
        if (value < next[from]! * (1 - ROUNDING)) [next[from], end[from]] = [value, to]
      }
    }
    best = next
    ends.unshift(end)
  }
  const lengths: number[] = []
  let from = 0
  for (const end of ends) {
    lengths.push(end[from]! - from)
    from = end[from]!
  }
  return { value: best[0]!, lengths }
}
