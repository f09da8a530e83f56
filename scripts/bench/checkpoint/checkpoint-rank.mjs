// Measures background saves on one backend: checkpoint-rank.mjs OUTPUT BACKEND PLAN, where PLAN is JSON.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { Adam, loadBackend, shardedMLP, trainer } from '@tsrun/training'
import { unlessMissing } from '../ranks.mjs'

const [output, name, argument] = /** @type {[string, 'wasm', string]} */ (process.argv.slice(2))
/** @type {import('./command.mjs').Plan} */
const { layers, width, batch, saves, quiet, folder } = JSON.parse(argument)

const result = await unlessMissing(async () => {
  await loadBackend(name)
  const model = shardedMLP({ layers, inputs: width, hidden: width, outputs: width })
  const run = await trainer(model, { optimizer: new Adam({ learningRate: 1e-4 }) })
  const inputs = Float32Array.from({ length: batch * width }, (_, i) => Math.sin(i))
  const labels = Int32Array.from({ length: batch }, (_, i) => i % width)
  const step = async () => {
    const begin = performance.now()
    await run.step({ size: batch, inputs, labels })
    // As a loop that reads its next batch, it lets others run between two steps.
    await setImmediate()
    return performance.now() - begin
  }
  const place = mkdtempSync(join(folder, 'checkpoint-'))
  const samples = []
  for (let save = 0; save < saves; save++) {
    /** @type {import('./summary.mjs').Save} */
    const sample = { stallMs: 0, before: [], during: [] }
    while (sample.before.length < quiet) sample.before.push(await step())
    const begin = performance.now()
    const { done } = await run.save(place, { background: true, keep: 1 })
    sample.stallMs = performance.now() - begin
    let isDone = false
    const ended = done.finally(() => {
      isDone = true
    })
    while (!isDone) sample.during.push(await step())
    await ended
    samples.push(sample)
  }
  rmSync(place, { recursive: true })
  run.dispose()
  return samples
})
writeFileSync(output, JSON.stringify(result))
