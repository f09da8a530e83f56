// One rank: join-rank.mjs OUTPUT. Rank 0 writes when all ranks have joined, and how long joining took.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'

const [output] = process.argv.slice(2)
const start = performance.now()
const group = await initProcessGroup()
await group.barrier()
if (group.rank === 0) {
  const joined = Date.now()
  writeFileSync(output, JSON.stringify({ joined, joiningMs: performance.now() - start }))
}
await group.destroy()
