// One network of four layers on four ranks, cut in four ways. The sizes are those of `tsrun plan`.
import { planLayouts } from '@tsrun/training/planning'
import { arrow, doubleArrow, legend, picture, rect, stripes, text } from './drawing.mjs'

const RANKS = 4
const LAYERS = 4
const PARAMETERS = 1e9

const COLUMN = 78
const GAP = 16
const LAYER = 16
const LAYER_GAP = 9
const BATCH = 10
const PANEL = { width: 405, height: 234 }
const LEFT = 24
const HEAD = 52
/** Of the parts of a panel, from its top. */
const TOP = { ranks: 38, batch: 46, layers: 64, facts: 64 + LAYERS * (LAYER + LAYER_GAP) + 18 }

const ranks = Array.from({ length: RANKS }, (_, rank) => rank)
const layers = Array.from({ length: LAYERS }, (_, layer) => layer)

/**
 * @typedef {object} Cut
 * @property {string} title
 * @property {{ dp?: number, tp?: number, pp?: number, zero?: number }} layout
 * @property {string} holds
 * @property {string} sends
 * @property {(rank: number) => number[]} batch the quarters of the batch that a rank reads
 * @property {(rank: number, layer: number) => number[] | 'all'} held the quarters of a layer on a rank
 * @property {number[]} exchanges the layers after which all ranks exchange something
 */

/** @type {Cut[]} */
const cuts = [
  {
    title: 'data parallel',
    layout: { dp: RANKS },
    holds: 'the whole network',
    sends: 'gradients: an all-reduce at the end of a step',
    batch: (rank) => [rank],
    held: () => 'all',
    exchanges: [LAYERS - 1],
  },
  {
    title: 'tensor parallel',
    layout: { tp: RANKS },
    holds: 'a part of every layer',
    sends: 'activations: an all-reduce in every layer',
    batch: () => ranks,
    held: (rank) => [rank],
    exchanges: layers,
  },
  {
    title: 'pipeline parallel',
    layout: { pp: RANKS },
    holds: 'some of the layers',
    sends: 'activations to the next rank, gradients back',
    batch: (rank) => (rank === 0 ? ranks : []),
    held: (rank, layer) => (rank === layer ? 'all' : []),
    exchanges: [],
  },
  {
    title: 'sharded data parallel (FSDP, ZeRO 3)',
    layout: { dp: RANKS, zero: 3 },
    holds: 'a part of every layer, one layer in use',
    sends: 'layers before their use, gradients after it',
    batch: (rank) => [rank],
    held: (rank, layer) => (layer === 1 ? ranks : [rank]),
    exchanges: [1],
  },
]

/** @returns {string} an SVG image */
export function drawParallel() {
  const panels = cuts.map((cut) => ({ ...cut, size: sizeOf(cut.layout) }))
  const meanings = [
    ...ranks.map((rank) => ({ name: `of-${rank}`, text: `held by rank ${rank}` })),
    { name: 'sum', text: 'examples' },
    { name: 'empty', text: 'elsewhere' },
  ]
  const facts = {
    title: 'One network on four ranks: data, tensor, pipeline and sharded data parallel',
    description: panels
      .map(
        ({ title, size, holds, sends }) =>
          `${title}: each rank holds ${size}, ${holds}, and sends ${sends}.`,
      )
      .join(' '),
    width: 2 * PANEL.width + LEFT,
    height: HEAD + 2 * PANEL.height + 30,
  }
  const note = `Sizes: ${PARAMETERS / 1e9} billion parameters in float32 with gradients and Adam, without activations.`
  return picture(facts, [
    ...legend(LEFT, meanings),
    ...panels.map(drawPanel),
    text(LEFT, facts.height - 16, note, 'quiet'),
  ])
}

/** @param {Cut['layout']} layout */
function sizeOf({ dp = 1, tp = 1, pp = 1, zero = 0 }) {
  const options = { parameters: PARAMETERS, memory: 80e9, ranks: RANKS, layers: LAYERS }
  const { memory } = planLayouts({ ...options, heads: RANKS, width: 4096 }).layouts.find(
    (one) => one.dp === dp && one.tp === tp && one.pp === pp && one.zero === zero && !one.recompute,
  )
  return `${Math.round((memory.total - memory.activations) / 1e9)} GB`
}

/**
 * @param {Cut & { size: string }} cut
 * @param {number} index
 */
function drawPanel({ title, size, holds, sends, batch, held, exchanges, layout }, index) {
  const left = LEFT + (index % 2) * PANEL.width
  const top = HEAD + Math.floor(index / 2) * PANEL.height
  const x = (/** @type {number} */ rank) => left + rank * (COLUMN + GAP)
  const y = (/** @type {number} */ layer) => top + TOP.layers + layer * (LAYER + LAYER_GAP)
  const columns = ranks.map((rank) => [
    text(x(rank) + COLUMN / 2, top + TOP.ranks, `rank ${rank}`, 'quiet middle'),
    ...ranks.map((quarter) =>
      rect(
        batch(rank).includes(quarter) ? 'sum' : 'empty',
        x(rank) + (quarter * COLUMN) / 4,
        top + TOP.batch,
        COLUMN / 4 - 2,
        BATCH,
      ),
    ),
    ...layers.map((layer) => {
      const quarters = held(rank, layer)
      return quarters === 'all'
        ? rect(`of-${rank}`, x(rank), y(layer), COLUMN, LAYER)
        : stripes(quarters, x(rank), y(layer), COLUMN, LAYER)
    }),
  ])
  const collectives = exchanges.map((layer) =>
    doubleArrow(x(0), x(RANKS - 1) + COLUMN, y(layer) + LAYER + LAYER_GAP / 2),
  )
  const messages = ranks
    .slice(layout.pp === undefined ? RANKS : 1)
    .map((rank) => arrow([x(rank - 1) + COLUMN, y(rank - 1) + LAYER], [x(rank) - 2, y(rank) + 2]))
  return [
    text(left, top + 20, title, 'title'),
    ...columns.flat(),
    ...collectives,
    ...messages,
    text(left, top + TOP.facts, `holds ${size}: ${holds}`),
    text(left, top + TOP.facts + 20, `sends ${sends}`),
  ].join('\n')
}
