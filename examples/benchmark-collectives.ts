// How fast are collectives, and what does "GB/s" mean?
//
//   npx tsrun --nproc 4 examples/benchmark-collectives.ts [--elements 100000000] [--transport tcp]
//
// The measurement of Stanford's CS336, lecture "Parallelism 2": all_reduce and reduce_scatter of
// 100 million float32 values per rank, after one call to warm up. It shows the bandwidth by the formulas
// of the lecture and the bus bandwidth of nccl-tests. The input of reduce_scatter is n times its output,
// so 100 million values may not fit in memory on many ranks. The default is then smaller; `--elements`
// sets it.

import { formatTable, readRankEnvironment } from '@tsrun/core'
import {
  allReduceBandwidth,
  arenaFor,
  type Bandwidth,
  elementsThatFit,
  fitsArena,
  reduceScatterBandwidth,
} from './lib/bandwidth.ts'
import { count, joinOver, readFlags, transport } from './lib/flags.ts'
import { printResult } from './lib/output.ts'

const MILLION = 1e6
const LECTURE = 100 * MILLION

const environment = readRankEnvironment()
const ranks = environment?.worldSize ?? 1
// reduce_scatter needs an input of n tensors, and an output.
const buffers = ranks + 1
const fitting = elementsThatFit(
  [LECTURE, 50 * MILLION, 20 * MILLION, 10 * MILLION, 5 * MILLION, MILLION],
  buffers,
  environment?.localWorldSize ?? 1,
)
const flags = readFlags({
  elements: {
    fallback: fitting,
    expected: `a whole number from 1, of which ${buffers} times as many float32 fit in 4 GiB`,
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
// Hosts may have different amounts of memory; the smallest determines the number.
const elements = Math.min(...(await group.allGatherObject(flags.elements)))
if (rank === 0 && elements === fitting && elements < LECTURE) {
  console.log(
    `The memory allows ${elements / MILLION} million elements; the lecture has 100 million.`,
  )
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

/** The median of the seconds from when all ranks are ready until all are done. */
function measure(tensor: Float32Array, run: () => void): number {
  for (let i = 0; i < tensor.length; i++) tensor[i] = Math.random()
  const seconds: number[] = []
  for (let i = 0; i <= flags.repeats; i++) {
    group.barrierSync()
    const start = performance.now()
    run()
    group.barrierSync()
    // The first run warms up.
    if (i > 0) seconds.push((performance.now() - start) / 1000)
  }
  return seconds.sort((a, b) => a - b)[seconds.length >> 1]!
}

function report(allReduce: Bandwidth, reduceScatter: Bandwidth): void {
  const rows = Object.entries({ all_reduce: allReduce, reduce_scatter: reduceScatter })
  console.log(
    `${elements} float32 values per rank, ${size} ranks, median of ${flags.repeats} runs:\n`,
  )
  console.log(
    formatTable(
      [
        ['operation', 'seconds', 'MiB sent (lecture)', 'lecture GiB/s', 'busbw GiB/s'],
        ...rows.map(([name, { seconds, sentBytes, lecture, busbw }]) => [
          ...[name, seconds.toFixed(4), (sentBytes / 2 ** 20).toFixed(0)],
          ...[lecture.toFixed(3), busbw.toFixed(3)],
        ]),
      ],
      'right',
    ).join('\n'),
  )
  console.log(
    '\nThe lecture divides the sent bytes by ranks x seconds (and prints GiB/s as "GB/s"). For all_reduce' +
      '\nthat is busbw. For reduce_scatter it counts the bytes of the output, while nccl-tests counts' +
      `\nthose of the input, which are ${size} times as many: so its figure is 1/${size} of busbw. No link is slower.`,
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
