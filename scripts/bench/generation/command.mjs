import { generate, gpt } from '@tsrun/models'
import { loadBackend } from '@tsrun/training'
import { readInteger, readList } from '../command-line.mjs'
import { formatRecords, median, printRows, significant } from '../figures.mjs'

const backends = /** @type {const} */ (['wasm', 'cpu', 'tensorflow'])

/** @type {import('../command-line.mjs').Command} */
export const generation = {
  summary: 'generating text with and without a cache of keys and values',
  options: {
    backends: { value: '<list>', default: 'wasm', description: 'where tensors are computed' },
    layers: { value: '<n>', default: '6', description: 'transformer blocks' },
    width: { value: '<n>', default: '128', description: 'of the model, a multiple of 4' },
    tokens: { value: '<n>', default: '256', description: 'to generate' },
    runs: { value: '<n>', default: '3', description: 'rounds' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const sizes = {
      layers: readInteger('layers', values['layers'], 1, 100),
      width: readInteger('width', values['width'], 4, 4096),
      tokens: readInteger('tokens', values['tokens'], 1, 4096),
      runs: readInteger('runs', values['runs'], 1, 100),
    }
    const rows = []
    for (const backend of readList('backends', values['backends'], backends)) {
      rows.push(await measureGeneration(/** @type {(typeof backends)[number]} */ (backend), sizes))
    }
    printRows(rows, values.json !== undefined, formatRecords)
    return 0
  },
}

/**
 * @param {(typeof backends)[number]} backend
 * @param {Readonly<Record<'layers' | 'width' | 'tokens' | 'runs', number>>} sizes
 */
async function measureGeneration(backend, { layers, width, tokens, runs }) {
  await loadBackend(backend)
  const model = gpt({ layers, width, heads: 4, block: tokens + 1 }).build()
  const time = async (/** @type {boolean} */ cache) => {
    const begin = performance.now()
    await generate(model, [0], { maxTokens: tokens, cache })
    return performance.now() - begin
  }
  // compiles
  await generate(model, [0], { maxTokens: 8 })
  const [cached, whole] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])]
  for (let round = 1; round <= runs; round++) {
    console.error(`round ${round} of ${runs}: ${backend}`)
    cached.push(await time(true))
    whole.push(await time(false))
  }
  const [cachedMs, wholeMs] = [median(cached), median(whole)]
  return {
    ...{ backend, layers, width, tokens },
    cachedMs: significant(cachedMs, 3),
    wholeMs: significant(wholeMs, 3),
    faster: significant(wholeMs / cachedMs, 3),
    tokensPerSecond: significant((tokens * 1000) / cachedMs, 3),
  }
}
