// One rank: overlap-rank.mjs OUTPUT TRANSPORT BYTES REPEATS
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import { median } from '../figures.mjs'

const [output, transport, ...numbers] = process.argv.slice(2)
const [bytes, repeats] = numbers.map(Number)
const group = await initProcessGroup({ transport, engine: 'worker' })
const buffer = group.alloc('float32', bytes / 4)
const values = Float64Array.from({ length: 1000 }, (_, i) => i)

const communicate = () => {
  group.allReduceSync(buffer)
}
for (let i = 0; i < 3; i++) communicate()
const alone = time(communicate)
let rounds = 1
while (time(() => compute(rounds)) < 1.5 * alone) rounds *= 2
const computing = time(() => compute(rounds))
const both = time(() => {
  const work = group.allReduce(buffer)
  compute(rounds)
  work.wait()
})
const hidden = (alone + computing - both) / alone
const times = { communicationMs: alone, computationMs: computing, bothMs: both, hidden }
if (group.rank === 0) writeFileSync(output, JSON.stringify(times))
await group.destroy()

/** A loop on the main thread that touches next to no memory. */
function compute(times) {
  for (let round = 0; round < times; round++) {
    for (let i = 0; i < values.length; i++) values[i] = Math.sqrt(values[i] + round)
  }
}

/** The median of the milliseconds of the slowest rank, which is the same on all ranks. */
function time(run) {
  const slowest = new Float64Array(repeats)
  for (let i = 0; i < repeats; i++) {
    group.barrierSync()
    const start = performance.now()
    run()
    slowest[i] = performance.now() - start
  }
  group.allReduceSync(slowest, { op: 'max' })
  return median(slowest)
}
