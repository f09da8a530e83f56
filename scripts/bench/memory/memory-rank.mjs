// One rank. It measures either how its memory grows, or how much of it there is:
// memory-rank.mjs OUTPUT growth TRANSPORT OPERATIONS
// memory-rank.mjs OUTPUT resident TRANSPORT
import { writeFileSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { initProcessGroup } from '@tsrun/distributed'

setFlagsFromString('--expose-gc')
const collectGarbage = /** @type {() => void} */ (runInNewContext('gc'))

const BLOCKS = 5
const MIB = 2 ** 20

const [output, what, transport, operations] = process.argv.slice(2)
const group = await initProcessGroup(
  what === 'growth' ? { transport } : { transport, engine: 'inline', arena: 64 * MIB },
)
const mebibytes = what === 'growth' ? await growth(Number(operations) / BLOCKS) : afterOneOfEach()
const all = await group.allGatherObject(mebibytes)
if (group.rank === 0) writeFileSync(output, JSON.stringify(Math.max(...all)))
await group.destroy()

/** By how much the resident memory grows over `BLOCKS` blocks of operations, after one to warm up. */
async function growth(operationsOfBlock) {
  const buffer = group.alloc('float32', 256)
  await run(operationsOfBlock, buffer)
  const before = resident()
  for (let i = 0; i < BLOCKS; i++) {
    await run(operationsOfBlock, buffer)
    collectGarbage()
  }
  return resident() - before
}

/** Half of the operations are all-reduces, the others messages. */
async function run(count, buffer) {
  const right = (group.rank + 1) % group.size
  const left = (group.rank + group.size - 1) % group.size
  for (let i = 0; i < count / 2; i++) {
    group.allReduceSync(buffer)
    const sent = group.isend(buffer, right)
    group.recvSync(buffer, left)
    sent.wait()
    if (i % 100 === 0) await setImmediate()
  }
}

/** The resident memory after a message with every peer, and collectives of all ranks. */
function afterOneOfEach() {
  const buffer = group.alloc('float32', 256 * group.size)
  const result = group.alloc('float32', 256 * group.size)
  group.allToAllSync(result, buffer, { algorithm: 'pairwise' })
  group.allReduceSync(buffer)
  group.barrierSync()
  return resident()
}

function resident() {
  collectGarbage()
  return process.memoryUsage.rss() / MIB
}
