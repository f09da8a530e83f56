// Step 3: what does a message cost?
//
//   npx tsrun --nproc 2 examples/03-ping-pong.ts
//   TSRUN_ENGINE=inline npx tsrun --nproc 2 examples/03-ping-pong.ts
//
// A pipeline sends activations forward and gradients back, so before building one we ask how long
// a message takes. Rank 0 sends a buffer ("ping"), and rank 1 sends it back ("pong"). Half of the round
// trip is the time of one message, measured with a single clock.
//
// The result follows  time(bytes) = latency + bytes / bandwidth  (the alpha-beta model): the
// latency dominates small messages, the bandwidth large ones. Both contribute the same at latency x
// bandwidth bytes: a pipeline should not cut its batch into micro-batches smaller than that.
//
// The first thousands of messages are slower: V8 still compiles the code that handles them, in both threads.
// So they are not counted.
//
// By default a separate thread carries the messages, so that a rank can compute at the same time. The
// hops to that thread and back are part of the latency. The inline engine (second line) has neither.

import { initProcessGroup, type ProcessGroup } from '@tsrun/distributed'
import { readFlags } from './lib/flags.ts'

const KIB = 2 ** 10
const MIB = 2 ** 20
const SIZES = [4, 64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB]

interface Measured {
  readonly bytes: number
  /** Microseconds for one message: the median and the 99th percentile. */
  readonly p50: number
  readonly p99: number
}

readFlags({})
const group = await initProcessGroup()

if (group.size === 2) {
  for (const bytes of SIZES) pingPong(group, bytes, Math.min(5000, (16 * MIB) / bytes))
  if (group.rank === 0) console.log('     bytes     p50 us     p99 us       GB/s')
  const measured = SIZES.map((bytes) => {
    const times = pingPong(group, bytes, Math.max(20, Math.min(1000, (64 * MIB) / bytes)))
    if (group.rank === 0) console.log(rowOf(times))
    return times
  })
  if (group.rank === 0) report(measured)
} else {
  process.exitCode = 2
  if (group.rank === 0) {
    console.error(
      `Ping-pong takes two ranks, and this job has ${group.size}. ` +
        'Start it with: npx tsrun --nproc 2 examples/03-ping-pong.ts',
    )
  }
}
await group.destroy()

/** Sends `bytes` back and forth many times. Both ranks call it; the times are those of rank 0. */
function pingPong(group: ProcessGroup, bytes: number, repeats: number): Measured {
  const buffer = group.alloc('float32', bytes / 4)
  const times: number[] = []

  for (let i = 0; i < repeats; i++) {
    const start = performance.now()
    if (group.rank === 0) {
      group.sendSync(buffer, group.next)
      group.recvSync(buffer, group.next)
    } else {
      group.recvSync(buffer, group.previous)
      group.sendSync(buffer, group.previous)
    }
    times.push(((performance.now() - start) / 2) * 1000)
  }

  group.free(buffer)
  times.sort((a, b) => a - b)
  return { bytes, p50: times[repeats >> 1]!, p99: times[Math.floor(repeats * 0.99)]! }
}

function rowOf({ bytes, p50, p99 }: Measured): string {
  const cells = [String(bytes), p50.toFixed(1), p99.toFixed(1), gigabytes(bytes, p50).toFixed(3)]
  return cells.map((cell) => cell.padStart(10)).join(' ')
}

function report(measured: readonly Measured[]): void {
  const latency = measured[0]!
  const largest = measured.at(-1)!
  const bandwidth = gigabytes(largest.bytes, largest.p50)
  const even = latency.p50 * bandwidth * 1000

  console.log(
    `\nThe latency is ${latency.p50.toFixed(0)} us, the bandwidth ${bandwidth.toFixed(2)} GB/s.`,
  )
  console.log(`A message of ${(even / KIB).toFixed(0)} KiB spends half of its time on each.`)
  const result = {
    latencyUs: round(latency.p50),
    latencyP99Us: round(latency.p99),
    bandwidthGBs: round(bandwidth),
    evenBytes: Math.round(even),
  }
  console.log(`result ${JSON.stringify(result)}`)
}

/** Gigabytes (10^9 bytes) per second. */
function gigabytes(bytes: number, microseconds: number): number {
  return bytes / microseconds / 1000
}

function round(value: number): number {
  return Number(value.toPrecision(4))
}
