// One rank: growth-rank.mjs OUTPUT transport operations
import { writeFileSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { initProcessGroup } from '@tsrun/distributed'
import { collectGarbage } from './garbage.mjs'

const BLOCKS = 5
const [output, transport, operations] = process.argv.slice(2)
const group = await initProcessGroup({ transport })
const buffer = group.alloc('float32', 256)
const other = (group.rank + 1) % group.size
const before = (group.rank + group.size - 1) % group.size

await run(Number(operations) / BLOCKS)
const sizes = [resident()]
for (let i = 0; i < BLOCKS; i++) {
  await run(Number(operations) / BLOCKS)
  sizes.push(resident())
}
const all = await group.allGatherObject((sizes.at(-1) - sizes[0]) / 2 ** 20)
if (group.rank === 0) writeFileSync(output, JSON.stringify({ growthMiB: Math.max(...all) }))
await group.destroy()

/** Half of them all-reduces, half messages. */
async function run(count) {
  for (let i = 0; i < count / 2; i++) {
    group.allReduceSync(buffer)
    const sent = group.isend(buffer, other)
    group.recvSync(buffer, before)
    sent.wait()
    if (i % 100 === 0) await setImmediate()
  }
}

function resident() {
  collectGarbage()
  return process.memoryUsage.rss()
}
