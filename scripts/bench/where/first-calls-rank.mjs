// One rank: first-calls-rank.mjs OUTPUT ENGINE BYTES. Writes microseconds of all-reduces on the first rank.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'

/** The first calls, and those that they are compared with. */
const CALLS = 500
const WARM_FROM = 5000

const [output, engine, bytes] = /** @type {[string, 'inline', string]} */ (process.argv.slice(2))
const group = await initProcessGroup({ engine })
const buffer = group.alloc('float32', Number(bytes) / 4)
const times = new Float64Array(WARM_FROM + CALLS)
// The first call would also measure how much later the other ranks join.
await group.barrier()
for (let i = 0; i < times.length; i++) {
  const start = performance.now()
  group.allReduceSync(buffer)
  times[i] = (performance.now() - start) * 1e3
}
const cut = (/** @type {number} */ from) => [...times.subarray(from, from + CALLS)]
if (group.rank === 0) {
  writeFileSync(output, JSON.stringify({ first: cut(0), warm: cut(WARM_FROM) }))
}
await group.destroy()
