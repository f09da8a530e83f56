// How fast are collectives, and what does "GB/s" mean?
//
//   npx tsrun --nproc 4 examples/benchmark-collectives.ts [--elements 100000000] [--transport tcp]
//
// The measurement of Stanford's CS336, lecture "Parallelism 2": all_reduce and reduce_scatter of
// 100 million float32 a rank, after one to warm up, with the lecture's formulas for the bandwidth
// beside the bus bandwidth of nccl-tests. reduce_scatter's input is n times its output, so on many
// ranks memory may not allow 100 million: then the default is less, or give `--elements`.

import { readRankEnvironment } from '@tsrun/core'
import { allReduceBandwidth, reduceScatterBandwidth, type Bandwidth } from './lib/bandwidth.ts'
import { count, readFlags } from './lib/flags.ts'
import { arenaFor, elementsThatFit, fitsArena } from './lib/memory.ts'
import { printResult } from './lib/result.ts'
import { formatTable } from './lib/table.ts'
import { joinOver, transport } from './lib/transport.ts'

const MILLION = 1e6
const LECTURE = 100 * MILLION

const environment = readRankEnvironment()
const ranks = environment?.worldSize ?? 1
// reduce_scatter needs its input, n tensors, and its output.
const buffers = ranks + 1
const fitting = elementsThatFit(
  [LECTURE, 50 * MILLION, 20 * MILLION, 10 * MILLION, 5 * MILLION, MILLION],
  buffers,
  environment?.localWorldSize ?? 1,
)
const flags = readFlags({
  elements: {
    fallback: fitting,
    expected: `a whole number from 1, and ${buffers} times as many float32 below 4 GiB`,
    read: (text: string) => {
      const elements = count(fitting).read(text)
      return elements === undefined || !fitsArena(elements * buffers) ? undefined : elements
    },
  },
  repeats: count(5),
  transport: transport(),
})
const group = await joinOver(flags.transport, { arena: arenaFor(flags.elements * buffers) })
const { rank, size } = group
// Hosts may have different memories: the smallest one decides.
const elements = Math.min(...(await group.allGatherObject(flags.elements)))
if (rank === 0 && elements === fitting && elements < LECTURE) {
  console.log(`Memory allows ${elements / MILLION} of the lecture's 100 million elements.`)
}

const output = group.alloc('float32', elements)
const reduceSeconds = measure(output, () => {
  group.allReduceSync(output)
})
const input = group.alloc('float32', elements * size)
const scatterSeconds = measure(input, () => {
  group.reduceScatterSync(output, input)
})

if (rank === 0) {
  const bytes = elements * 4
  report(
    allReduceBandwidth(bytes, size, reduceSeconds),
    reduceScatterBandwidth(bytes, size, scatterSeconds),
  )
}
await group.destroy()

/** Median seconds of a run, from the moment when all ranks are ready until all are done. */
function measure(tensor: Float32Array, run: () => void): number {
  for (let i = 0; i < tensor.length; i++) tensor[i] = Math.random()
  const seconds: number[] = []
  for (let i = 0; i <= flags.repeats; i++) {
    group.barrierSync()
    const start = performance.now()
    run()
    group.barrierSync()
    // the first one warms up
    if (i > 0) seconds.push((performance.now() - start) / 1000)
  }
  return seconds.sort((a, b) => a - b)[seconds.length >> 1]!
}

function report(allReduce: Bandwidth, reduceScatter: Bandwidth): void {
  const rows = Object.entries({ all_reduce: allReduce, reduce_scatter: reduceScatter })
  console.log(`${elements} float32 a rank, ${size} ranks, median of ${flags.repeats}:\n`)
  console.log(
    formatTable(
      ['operation', 'seconds', 'MiB sent (lecture)', 'lecture GiB/s', 'busbw GiB/s'],
      rows.map(([name, { seconds, sentBytes, lecture, busbw }]) => [
        ...[name, seconds.toFixed(4), (sentBytes / 2 ** 20).toFixed(0)],
        ...[lecture.toFixed(3), busbw.toFixed(3)],
      ]),
    ),
  )
  console.log(
    '\nThe lecture divides sent bytes by ranks x seconds (and prints GiB/s as "GB/s"). For all_reduce' +
      '\nthat is busbw. For reduce_scatter it counts the bytes of the output, while nccl-tests counts' +
      `\nthose of the input, which are ${size} times as many: so its figure is 1/${size} of busbw, and no link is slower.`,
  )
  printResult({
    elements,
    ranks: size,
    allReduceSeconds: allReduce.seconds,
    allReduceLecture: allReduce.lecture,
    allReduceBusbw: allReduce.busbw,
    reduceScatterSeconds: reduceScatter.seconds,
    reduceScatterLecture: reduceScatter.lecture,
    reduceScatterBusbw: reduceScatter.busbw,
  })
}
