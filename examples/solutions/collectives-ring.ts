// Collectives, question 3: an all-reduce from sends and receives.
//
//   npx tsrun --nproc 4 examples/solutions/collectives-ring.ts
//
// The ranks form a ring, and the buffer has a chunk for each rank. In the first n - 1 steps, what arrives is
// added and passed on, until each chunk has its sum on one rank. In n - 1 more steps the sums go round.

import { initProcessGroup, type ProcessGroup } from '@tsrun/distributed'
import { prove } from '../lib/prove.ts'

/** Sums `buffer`, whose length divides by the number of ranks. Returns how many numbers a rank sent. */
async function ringAllReduce(group: ProcessGroup, buffer: Float32Array): Promise<number> {
  const { rank, size, next, previous } = group
  const length = buffer.length / size
  const chunk = (index: number): Float32Array => {
    const at = (((index % size) + size) % size) * length
    return buffer.subarray(at, at + length)
  }
  const received = new Float32Array(length)
  let sent = 0
  for (let step = 0; step < 2 * (size - 1); step++) {
    // All ranks send at the same time, so no rank may wait for its send before it receives.
    const sending = group.send(chunk(rank - step), next)
    await group.recv(received, previous)
    await sending
    sent += length
    const target = chunk(rank - step - 1)
    const isSum = step < size - 1
    target.set(isSum ? received.map((value, i) => value + target[i]!) : received)
  }
  return sent
}

const LENGTH = 4200
const group = await initProcessGroup()
const values = Float32Array.from({ length: LENGTH }, (_, i) => i + group.rank)
const own = values.slice()
const sent = await ringAllReduce(group, own)
await group.allReduce(values)
if (group.rank === 0) {
  console.log(`each rank sent ${sent} numbers in ${2 * (group.size - 1)} messages`)
}
prove(
  'it equals allReduce',
  own.every((value, i) => value === values[i]),
)
prove(
  'a rank sends 2 (n - 1) / n of the buffer',
  sent === (2 * (group.size - 1) * LENGTH) / group.size,
)
await group.destroy()
