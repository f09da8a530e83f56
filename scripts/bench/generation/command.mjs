import { readInteger, readList, UsageError } from '../command-line.mjs'
import { formatRecords, median, printRows, significant } from '../figures.mjs'
import { backendSystem, ifAsked, measure, takeTurns, torchSystems } from '../turns.mjs'

const backends = /** @type {const} */ (['wasm', 'cpu', 'tensorflow'])
const rank = new URL('generation-rank.mjs', import.meta.url)
const peer = new URL('torch_generation.py', import.meta.url)

/**
 * @typedef {Readonly<Record<'layers' | 'width' | 'heads' | 'vocabulary' | 'tokens', number>>} Sizes
 * @typedef {Sizes & { whole: boolean }} Plan - whole: also without a cache
 */

/** @type {import('../command-line.mjs').Command} */
export const generation = {
  summary: 'generating text with and without a cache of keys and values, compared with PyTorch',
  options: {
    backends: { value: '<list>', default: 'wasm', description: 'where tensors are computed' },
    layers: { value: '<n>', default: '6', description: 'transformer blocks' },
    width: { value: '<n>', default: '128', description: 'of the model, a multiple of the heads' },
    heads: { value: '<n>', default: '4', description: 'of each block' },
    vocabulary: { value: '<n>', default: '256', description: 'of the model' },
    tokens: { value: '<n>', default: '256', description: 'to generate' },
    'cache-only': { description: 'leave out generation without a cache' },
    peers: { value: '<list>', description: 'torch: also measured if installed' },
    runs: { value: '<n>', default: '3', description: 'rounds; the systems take turns in each' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const plan = {
      layers: readInteger('layers', values['layers'], 1, 100),
      width: readInteger('width', values['width'], 4, 4096),
      heads: readInteger('heads', values['heads'], 1, 64),
      vocabulary: readInteger('vocabulary', values['vocabulary'], 1, 200_000),
      tokens: readInteger('tokens', values['tokens'], 1, 4096),
      whole: values['cache-only'] === undefined,
    }
    if (plan.width % plan.heads !== 0) throw new UsageError('--width must be a multiple of --heads')
    const { rows, failures } = await measureGeneration({
      ours: readList('backends', values['backends'], backends),
      peers: readList('peers', values['peers'], ['torch']),
      plan,
      runs: readInteger('runs', values['runs'], 1, 100),
    })
    if (rows.length > 0) printRows(rows, values.json !== undefined, formatRecords)
    return failures === 0 ? 0 : 1
  },
}

/**
 * `cachedMs` and `wholeMs`: the whole text, with a cache and without; `ratioToTorch`: of
 * `tokensPerSecond`, more is better.
 *
 * @param {{ ours: readonly string[], peers: readonly string[], plan: Plan, runs: number }} options
 */
export async function measureGeneration({ ours, peers, plan, runs }) {
  const systems = [
    ...ours.map((name) => backendSystem(name, rank)),
    ...(await ifAsked(peers, () => torchSystems(peer))),
  ]
  const { rounds, failures } = await takeTurns(systems, runs, (system) => measure(system, plan))
  return { rows: summarize(rounds, plan), failures }
}

/**
 * @typedef {{ cachedMs: number, wholeMs: number | null }} Times
 *
 * @param {ReadonlyMap<string, readonly Times[]>} rounds - by system
 * @param {Sizes} sizes
 */
export function summarize(rounds, { layers, width, heads, vocabulary, tokens }) {
  const medians = [...rounds].map(([system, times]) => ({
    system,
    cachedMs: median(times.map(({ cachedMs }) => cachedMs)),
    wholeMs:
      times[0]?.wholeMs === null ? null : median(times.map(({ wholeMs }) => Number(wholeMs))),
  }))
  const torch = medians.find(({ system }) => system === 'torch')
  return medians.map(({ system, cachedMs, wholeMs }) => ({
    ...{ system, layers, width, heads, vocabulary, tokens },
    cachedMs: significant(cachedMs, 3),
    wholeMs: wholeMs && significant(wholeMs, 3),
    faster: wholeMs && significant(wholeMs / cachedMs, 3),
    tokensPerSecond: significant((tokens * 1000) / cachedMs, 3),
    ratioToTorch: torch === undefined ? null : significant(torch.cachedMs / cachedMs, 3),
  }))
}
