// Collectives, question 2: an all-reduce from a reduce-scatter and an all-gather.
//
//   npx tsrun --nproc 4 examples/solutions/collectives-all-reduce.ts
//
// A reduce-scatter gives each rank an equal slice, so a buffer whose length does not divide by the number
// of ranks is filled up with zeros.

import { initProcessGroup, type ProcessGroup } from '@tsrun/distributed'
import { prove } from '../lib/prove.ts'

/** Sums `buffer` over the ranks, in place. */
async function allReduce(group: ProcessGroup, buffer: Float32Array): Promise<void> {
  const slice = new Float32Array(Math.ceil(buffer.length / group.size))
  const padded = new Float32Array(slice.length * group.size)
  padded.set(buffer)
  await group.reduceScatter(slice, padded)
  await group.allGather(padded, slice)
  buffer.set(padded.subarray(0, buffer.length))
}

const group = await initProcessGroup()
const values = Float32Array.from({ length: 10 }, (_, i) => i + group.rank)
const own = values.slice()
await allReduce(group, own)
await group.allReduce(values)
if (group.rank === 0) console.log(own.join(', '))
prove(
  'it equals allReduce',
  own.every((value, i) => value === values[i]),
)
await group.destroy()
