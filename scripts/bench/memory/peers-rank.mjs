// One rank: peers-rank.mjs OUTPUT transport
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import { collectGarbage } from './garbage.mjs'

const [output, transport] = process.argv.slice(2)
const group = await initProcessGroup({ transport, engine: 'inline', arena: 64 * 2 ** 20 })
const buffer = group.alloc('float32', 256 * group.size)
const result = group.alloc('float32', 256 * group.size)
// a message with everybody, and collectives in which everybody takes part
group.allToAllSync(result, buffer, { algorithm: 'pairwise' })
group.allReduceSync(buffer)
group.barrierSync()
collectGarbage()
const all = await group.allGatherObject(process.memoryUsage.rss() / 2 ** 20)
if (group.rank === 0) writeFileSync(output, JSON.stringify({ residentMiB: Math.max(...all) }))
await group.destroy()
