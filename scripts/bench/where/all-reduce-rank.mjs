// One rank: all-reduce-rank.mjs OUTPUT ENGINE SIZES REPEATS, where SIZES are bytes, with commas between.
import { writeFileSync } from 'node:fs'
import { monotonicNow } from '@tsrun/core'
import { initProcessGroup } from '@tsrun/distributed'
import { instantiateKernels } from '../../../packages/distributed/dist/kernels.js'
import { median } from '../figures.mjs'

const [output, engine, sizes, repeats] = /** @type {[string, 'inline', string, string]} */ (
  process.argv.slice(2)
)
const PAGE = 65536
const group = await initProcessGroup({ engine })
const exchanges = []
for (const bytes of sizes.split(',').map(Number)) exchanges.push(await measure(bytes))
if (group.rank === 0) writeFileSync(output, JSON.stringify(exchanges))
await group.destroy()

/**
 * @param {number} bytes
 * @returns {Promise<import('./summaries.mjs').Exchange>}
 */
async function measure(bytes) {
  const buffer = group.alloc('float32', bytes / 4)
  const count = Math.max(5, Math.min(Number(repeats), Math.floor(2 ** 30 / bytes)))
  const warmUps = bytes > 2 ** 22 ? 3 : count
  const own = repeat(warmUps, count, () => {
    const called = monotonicNow()
    const work = group.allReduce(buffer)
    const returned = monotonicNow()
    work.wait()
    const resumed = monotonicNow()
    const { posted, completed } = /** @type {NonNullable<typeof work.timing>} */ (work.timing)
    return { called, returned, posted, completed, resumed }
  })
  const prepared = group.allReduceInit(buffer)
  const starts = repeat(warmUps, count, () => {
    const called = monotonicNow()
    prepared.start()
    const returned = monotonicNow()
    prepared.wait()
    return returned - called
  })
  prepared.free()
  const adds = repeat(3, 10, adder(bytes))
  group.free(buffer)
  const all = await group.allGatherObject({ own, start: median(starts), add: median(adds) })
  return {
    bytes,
    repeats: own.map((_, i) => all.map((each) => /** @type {(typeof own)[0]} */ (each.own[i]))),
    startMs: median(all.map(({ start }) => start)),
    kernelMs: median(all.map(({ add }) => add)),
  }
}

/**
 * All ranks begin each repetition together.
 *
 * @template T
 * @param {number} warmUps
 * @param {number} count
 * @param {() => T} run
 * @returns {T[]}
 */
function repeat(warmUps, count, run) {
  const results = []
  for (let i = -warmUps; i < count; i++) {
    group.barrierSync()
    const result = run()
    if (i >= 0) results.push(result)
  }
  return results
}

/**
 * Adds what a rank has to add in an all-reduce, with the engine's kernel: a part of each other rank to
 * its own.
 *
 * @param {number} bytes
 * @returns {() => number} milliseconds
 */
function adder(bytes) {
  const count = Math.ceil(bytes / 4 / group.size)
  const each = Math.ceil((count * 4) / 64) * 64
  const pages = Math.ceil((group.size * each) / PAGE) + 1
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
  const { combine } = instantiateKernels(memory)
  return () => {
    const start = monotonicNow()
    // The kernels may keep tables on the first page.
    for (let rank = 1; rank < group.size; rank++) {
      combine('sum', 'float32', PAGE, PAGE, PAGE + rank * each, count)
    }
    return monotonicNow() - start
  }
}
