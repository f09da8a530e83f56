// Measures background saves on one backend: checkpoint-rank.mjs OUTPUT BACKEND PLAN, where PLAN is JSON.
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { initProcessGroup } from '@tsrun/distributed'
import { Adam, loadBackend, shardedMLP, trainer } from '@tsrun/training'
import { unlessMissing } from '../ranks.mjs'

const [output, name, argument] = /** @type {[string, 'wasm', string]} */ (process.argv.slice(2))
/** @type {import('./command.mjs').Plan} */
const { layers, width, batch, saves, quiet, folder, ranks, zero } = JSON.parse(argument)

let isFirst = true
const result = await unlessMissing(async () => {
  const group = ranks > 1 ? await initProcessGroup() : undefined
  isFirst = (group?.rank ?? 0) === 0
  await loadBackend(name)
  const model = shardedMLP({ layers, inputs: width, hidden: width, outputs: width })
  const run = await trainer(model, {
    optimizer: new Adam({ learningRate: 1e-4 }),
    ...(ranks > 1 && { zero: /** @type {0 | 1 | 2 | 3} */ (zero) }),
  })
  const inputs = Float32Array.from({ length: batch * width }, (_, i) => Math.sin(i))
  const labels = Int32Array.from({ length: batch }, (_, i) => i % width)
  const step = async () => {
    const begin = performance.now()
    await run.step({ size: batch, inputs, labels })
    // As a loop that reads its next batch, it lets others run between two steps.
    await setImmediate()
    return performance.now() - begin
  }
  const place = join(folder, 'checkpoint')
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
    while ((await run.sum(isDone ? 0 : 1))[0] > 0) sample.during.push(await step())
    await ended
    samples.push(sample)
  }
  if (isFirst) rmSync(place, { recursive: true })
  run.dispose()
  await group?.destroy()
  return samples
})
if (isFirst) writeFileSync(output, JSON.stringify(result))
