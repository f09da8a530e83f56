import type { LayoutPlan, PlannedLayout } from './layouts.ts'

/**
 * Returns the layouts of a plan as table rows; the first row has the headings. Sizes are in decimal
 * gigabytes.
 *
 * @param most - the largest number of layout rows
 */
export function planTable({ layouts, best }: LayoutPlan, most = layouts.length): string[][] {
  const rows = layouts.slice(0, most).map((each) => rowOf(each, each === best))
  return [[...headings], ...rows]
}

const headings = [
  'dp',
  'tp',
  'pp',
  'ZeRO',
  're',
  'weights',
  'grads',
  'optim',
  'activ',
  'GB',
  'bubble',
  'step',
  '',
]

function rowOf(layout: PlannedLayout, isBest: boolean): string[] {
  const { dp, tp, pp, zero, recompute, memory, fits, bubble, step } = layout
  const { weights, gradients, optimizer, activations, total } = memory
  return [
    ...[dp, tp, pp].map(String),
    zero === 0 ? '-' : String(zero),
    recompute ? 'yes' : '-',
    ...[weights, gradients, optimizer, activations, total].map((bytes) => short(bytes / 1e9)),
    `${(100 * bubble).toFixed(0)} %`,
    seconds(step),
    isBest ? 'best' : fits ? 'fits' : 'no',
  ]
}

function short(value: number): string {
  return value >= 99.5 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(1) : value.toFixed(2)
}

function seconds(value: number): string {
  return value >= 1 ? `${short(value)} s` : `${short(1000 * value)} ms`
}
