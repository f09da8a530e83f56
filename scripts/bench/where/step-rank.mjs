// One rank: step-rank.mjs OUTPUT BACKEND PLAN, where PLAN is JSON.
import { writeFileSync } from 'node:fs'
import { monotonicNow } from '@tsrun/core'
import { initProcessGroup } from '@tsrun/distributed'
import { SpanRecorder } from '@tsrun/distributed/record'
import {
  columnParallel,
  copyCounts,
  loadBackend,
  rowParallel,
  SGD,
  shardedMLP,
  tf,
  trainer,
} from '@tsrun/training'
import { median } from '../figures.mjs'
import { batchOf, sizesOf, unlessMissing } from '../ranks.mjs'

/** @typedef {import('../steps/workloads.mjs').Workload} Workload */

const [output, backend, argument] = /** @type {[string, 'wasm', string]} */ (process.argv.slice(2))
/** @type {import('./layouts.mjs').Plan} */
const { layout, workloads, engine, microbatches, repeats } = JSON.parse(argument)

/** Of the all-reduce that the communication of a step is compared with. */
const WARM_UPS = 200
const REPEATS = 50

/** @type {import('@tsrun/distributed').ProcessGroup | undefined} */
let group
const result = await unlessMissing(async () => {
  await loadBackend(backend)
  group = await initProcessGroup({ engine })
  const samples = []
  for (const workload of workloads) {
    const steps = await measure(workload, group)
    const isAveraged = layout.mesh.dp === group.size && layout.zero === undefined && group.size > 1
    const warm = isAveraged ? await warmAllReduce(bytesOf(steps), group) : undefined
    samples.push({ workload: workload.name, steps, ...(warm && { warm }) })
  }
  return { samples }
})
if (Number(process.env['RANK']) === 0) writeFileSync(output, JSON.stringify(result))
await group?.destroy()

/**
 * The steps, each as what all ranks have recorded of it.
 *
 * @param {Workload} workload
 * @param {import('@tsrun/distributed').ProcessGroup} world
 * @returns {Promise<import('./summaries.mjs').Step[]>}
 */
async function measure(workload, world) {
  const { layers, batch } = workload
  const count = repeats ?? workload.repeats
  const recorder = new SpanRecorder({ rank: world.rank, capacity: 65_536 })
  world.recordSpans(recorder)
  const run = await trainer(shardedMLP(sizesOf(workload)), {
    ...{ mesh: layout.mesh, optimizer: new SGD({ learningRate: 1e-3 }) },
    ...(layout.zero !== undefined && { zero: layout.zero }),
    ...(layout.mesh.tp !== undefined && { plan: planOf(layers) }),
    ...(layout.mesh.pp !== undefined && { microbatches }),
  })
  const rows = batch / run.share[1]
  const { x, labels } = batchOf(workload, rows)
  const steps = []
  for (let i = -Math.min(workload.warmUps, count); i < count; i++) {
    await world.barrier()
    const [mark, copied] = [recorder.recorded, copyCounts()]
    const start = monotonicNow()
    await run.step({ inputs: x, labels })
    const end = monotonicNow()
    const { toHost, toTensor } = copyCounts()
    const own = {
      rank: world.rank,
      window: { start, end },
      spans: recorder.spans(mark),
      toHost: toHost.bytes - copied.toHost.bytes,
      toTensor: toTensor.bytes - copied.toTensor.bytes,
    }
    const all = await world.allGatherObject(own)
    if (i >= 0) steps.push(all)
  }
  run.dispose()
  world.recordSpans(undefined)
  tf.dispose([x, labels])
  return steps
}

/**
 * The bytes that the first rank has averaged in the last step.
 *
 * @param {readonly import('./summaries.mjs').Step[]} steps
 */
function bytesOf(steps) {
  const spans = steps.at(-1)?.[0]?.spans ?? []
  const collectives = spans.filter(({ kind }) => kind === 'collective')
  return collectives.reduce((total, { bytes = 0 }) => total + bytes, 0)
}

/**
 * One all-reduce of so many bytes, of all ranks at once: the median of the slowest rank's times, once it
 * runs at its usual speed.
 *
 * @param {number} bytes
 * @param {import('@tsrun/distributed').ProcessGroup} world
 * @returns {Promise<import('./summaries.mjs').Warm>}
 */
async function warmAllReduce(bytes, world) {
  const buffer = world.alloc('float32', Math.ceil(bytes / 4))
  const times = []
  for (let i = -WARM_UPS; i < REPEATS; i++) {
    world.barrierSync()
    const start = monotonicNow()
    world.allReduceSync(buffer)
    if (i >= 0) times.push(monotonicNow() - start)
  }
  world.free(buffer)
  const all = await world.allGatherObject(times)
  return { bytes, ms: median(times.map((_, i) => Math.max(...all.map((each) => each[i] ?? 0)))) }
}

/** @param {number} layers */
function planOf(layers) {
  return Object.fromEntries(
    Array.from({ length: layers }, (_, i) => [
      `layers.${i}`,
      i % 2 === 0 ? columnParallel() : rowParallel(),
    ]),
  )
}
