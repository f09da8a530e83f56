// What do collectives do?
//
//   npx tsrun --nproc auto examples/collectives.ts [--transport tcp]
//   mpirun -n 4 --bind-to none node --import tsx examples/collectives.ts --transport mpi
//
// The demonstration of Stanford's CS336, lecture "Parallelism 2": every rank shows its buffer before
// and after all-reduce, reduce-scatter and all-gather. On four ranks:
//
//   all-reduce      every rank gets the sum              [6, 10, 14, 18] on all ranks
//   reduce-scatter  every rank gets one part of the sum  6 on rank 0, 10 on rank 1, ...
//   all-gather      every rank gets all parts            [6, 10, 14, 18] on all ranks
//
// The last two together do the same as the first: all-reduce = reduce-scatter + all-gather. This is how
// large buffers are all-reduced, and why data parallel training can shard the state of the optimizer
// over the ranks without more communication.
//
// Read: docs/glossary.md#collectives. Exercises: examples/exercises.md#collectives

import type { ProcessGroup } from '@tsrun/distributed'
import { join, joinFlags, readFlags } from './lib/flags.ts'
import { printResult } from './lib/output.ts'

const group = await join(readFlags(joinFlags()))
const { rank, size } = group

const isRoot = rank === 0

const copy = Float32Array.from({ length: size }, (_, i) => (isRoot ? i : -1))
await show('before broadcast', copy)
await group.broadcast(copy, 0)
await show('after broadcast', copy)

const piece = new Float32Array(1).fill(-1)
await show('before scatter', isRoot ? copy : piece)
await group.scatter(piece, isRoot ? copy : null, 0)
await show('after scatter', piece)

const collected = isRoot ? new Float32Array(size) : null
await show('before gather', piece)
await group.gather(collected, piece, 0)
await show('after gather', collected)

const summed = Float32Array.of(0, 1, 2, 3).map((value) => value + rank)
await show('before reduce', summed)
await group.reduce(summed, 0)
await show('after reduce', isRoot ? summed : null)

const tensor = Float32Array.of(0, 1, 2, 3).map((value) => value + rank)
await show('before all-reduce', tensor)
await group.allReduce(tensor)
await show('after all-reduce', tensor)

const input = Float32Array.from({ length: size }, (_, i) => i + rank)
const part = new Float32Array(1)
await show('before reduce-scatter', input)
await group.reduceScatter(part, input)
await show('after reduce-scatter', part)

const gathered = new Float32Array(size)
await show('before all-gather', part)
await group.allGather(gathered, part)
await show('after all-gather', gathered)

const reduced = input.slice()
await group.allReduce(reduced)
const isSame = await onAllRanks(
  group,
  reduced.every((value, i) => value === gathered[i]),
)
if (rank === 0) {
  const verdict = isSame ? 'is' : 'is NOT'
  console.log(`all-reduce of the same input ${verdict} reduce-scatter + all-gather`)
  printResult({
    ranks: size,
    broadcast: [...copy],
    gather: [...collected!],
    reduce: [...summed],
    allReduce: [...tensor],
    gathered: [...gathered],
    isSame,
  })
}
await group.destroy()

/** Rank 0 prints the buffers of all ranks, because lines of several processes could come in any order. */
async function show(when: string, buffer: Float32Array | null): Promise<void> {
  const buffers = await group.gatherObject(buffer && [...buffer], 0)
  for (const [rank, values] of buffers?.entries() ?? []) {
    console.log(`rank ${rank} [${when}]: ${values?.join(', ') ?? 'nothing'}`)
  }
  if (buffers !== undefined) console.log()
}

async function onAllRanks(group: ProcessGroup, isTrue: boolean): Promise<boolean> {
  const votes = await group.allGatherObject(isTrue)
  return votes.every(Boolean)
}
