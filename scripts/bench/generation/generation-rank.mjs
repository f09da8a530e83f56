// Measures generation on one backend: generation-rank.mjs OUTPUT BACKEND PLAN, where PLAN is JSON.
import { writeFileSync } from 'node:fs'
import { generate, gpt } from '@tsrun/models'
import { loadBackend } from '@tsrun/training'
import { unlessMissing } from '../ranks.mjs'

const [output, name, argument] = /** @type {[string, 'wasm', string]} */ (process.argv.slice(2))
/** @type {import('./command.mjs').Plan} */
const { layers, width, heads, vocabulary, tokens, whole } = JSON.parse(argument)

const result = await unlessMissing(async () => {
  await loadBackend(name)
  const model = gpt({ layers, width, heads, vocabulary, block: tokens + 1 }).build()
  const time = async (/** @type {boolean} */ cache) => {
    const begin = performance.now()
    await generate(model, [0], { maxTokens: tokens, cache })
    return performance.now() - begin
  }
  // The first text compiles.
  await time(true)
  return { cachedMs: await time(true), wholeMs: whole ? await time(false) : null }
})
writeFileSync(output, JSON.stringify(result))
