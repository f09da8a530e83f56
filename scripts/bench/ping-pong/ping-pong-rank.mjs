// One of two ranks: ping-pong-rank.mjs OUTPUT TRANSPORT ENGINE BYTES WARM_UPS REPEATS
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'

const [output, transport, engine, ...numbers] = process.argv.slice(2)
const [bytes, warmUps, repeats] = numbers.map(Number)
const group = await initProcessGroup({ transport, engine })
const buffer = group.alloc('uint8', bytes)
const other = 1 - group.rank
const us = []

for (let i = -warmUps; i < repeats; i++) {
  const start = performance.now()
  if (group.rank === 0) group.sendSync(buffer, other)
  group.recvSync(buffer, other)
  if (group.rank === 1) group.sendSync(buffer, other)
  if (i >= 0) us.push((performance.now() - start) * 1e3)
}
if (group.rank === 0) writeFileSync(output, us.map((time) => time.toFixed(3)).join('\n'))
await group.destroy()
