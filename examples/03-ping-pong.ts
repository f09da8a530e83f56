// Step 3: what does a message cost?
//
//   npx tsrun --nproc 2 examples/03-ping-pong.ts
//   npx tsrun --nproc 2 examples/03-ping-pong.ts --transport tcp --engine inline
//
// A pipeline sends activations forward and gradients back, so before building one we ask how long
// a message takes. Rank 0 sends a tensor ("ping"), and rank 1 sends it back ("pong"). Half of the round
// trip is the time of one message, measured with a single clock: by shared memory, then by TCP.
//
// The result follows  time(bytes) = latency + bytes / bandwidth  (the alpha-beta model): the
// latency dominates small messages, the bandwidth large ones. The latency is the least time of a small
// message, the bandwidth that of the largest. Both contribute the same at latency x bandwidth bytes: a
// pipeline should not cut its batch into micro-batches smaller than that.
//
// The first thousands of messages are slower: V8 still compiles the code that handles them. So they are
// not counted.
//
// Read: docs/concepts.md#what-a-message-costs. Exercises: examples/exercises.md#03-ping-pong

import type { ProcessGroup } from '@tsrun/distributed'
import { recvTensor, sendTensor, tf, type Tensor } from '@tsrun/training'
import { endWith, join, jobFlags, readFlags } from './lib/flags.ts'
import { loadShown } from './lib/job.ts'
import { median, printResult } from './lib/output.ts'

const KIB = 2 ** 10
const MIB = 2 ** 20
const SIZES = [4, 64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
const SMALL = 4 * KIB

interface Measured {
  readonly bytes: number
  /** Microseconds for one message: the least, the median and the 99th percentile. */
  readonly least: number
  readonly p50: number
  readonly p99: number
}

const { transport, device, ...how } = readFlags(jobFlags())
if (process.env['WORLD_SIZE'] !== '2') {
  endWith('Ping-pong takes two ranks: npx tsrun --nproc 2 examples/03-ping-pong.ts')
}
await loadShown(Number(process.env['RANK']), device)
const isChosen = transport !== 'environment' || process.env['TSRUN_TRANSPORT'] !== undefined
const transports = isChosen ? [transport] : (['shared-memory', 'tcp'] as const)
/** The figures of the first transport, on rank 0. */
let result: Record<string, number> | undefined

for (const name of transports) {
  const group = await join({ transport: name, ...how })
  if (group.rank === 0) {
    const shown = name === 'environment' ? process.env['TSRUN_TRANSPORT'] : name
    console.log(`by ${shown}\n     bytes   least us     p50 us     p99 us       GB/s`)
  }
  const measured = await measure(group)
  if (group.rank === 0) {
    const figures = report(measured)
    result ??= figures
  }
  await group.destroy()
}
if (result !== undefined) printResult(result)

async function measure(group: ProcessGroup): Promise<Measured[]> {
  for (const bytes of SIZES) await pingPong(group, bytes, Math.min(3000, (8 * MIB) / bytes))
  const measured: Measured[] = []
  for (const bytes of SIZES) {
    const times = await pingPong(group, bytes, Math.max(20, Math.min(1000, (32 * MIB) / bytes)))
    if (group.rank === 0) console.log(rowOf(times))
    measured.push(times)
  }
  return measured
}

/** Sends a tensor back and forth many times. Both ranks call it; the times are those of rank 0. */
async function pingPong(group: ProcessGroup, bytes: number, repeats: number): Promise<Measured> {
  const shape = [bytes / 4]
  const other = 1 - group.rank
  let tensor: Tensor = tf.ones(shape)
  const times: number[] = []

  for (let i = 0; i < repeats; i++) {
    const start = performance.now()
    if (group.rank === 0) await sendTensor(group, tensor, other)
    tensor.dispose()
    tensor = await recvTensor(group, shape, other)
    if (group.rank === 1) await sendTensor(group, tensor, other)
    times.push(((performance.now() - start) / 2) * 1000)
  }

  tensor.dispose()
  const p99 = times.toSorted((a, b) => a - b)[Math.floor(repeats * 0.99)]!
  return { bytes, least: Math.min(...times), p50: median(times), p99 }
}

function rowOf({ bytes, least, p50, p99 }: Measured): string {
  const times = [least, p50, p99].map((time) => time.toFixed(1))
  const cells = [String(bytes), ...times, gigabytes(bytes, p50).toFixed(3)]
  return cells.map((cell) => cell.padStart(10)).join(' ')
}

function report(measured: readonly Measured[]): Record<string, number> {
  const small = measured.filter(({ bytes }) => bytes <= SMALL)
  const latency = Math.min(...small.map(({ least }) => least))
  const largest = measured.at(-1)!
  const bandwidth = gigabytes(largest.bytes, largest.p50)
  const even = latency * bandwidth * 1000
  console.log(
    `\nThe latency is ${latency.toFixed(1)} us, the bandwidth ${bandwidth.toFixed(2)} GB/s.`,
  )
  console.log(`A message of ${(even / KIB).toFixed(0)} KiB spends half of its time on each.\n`)
  return {
    ...{ latencyUs: latency, latencyP99Us: measured[0]!.p99 },
    ...{ bandwidthGBs: bandwidth, evenBytes: Math.round(even) },
  }
}

/** Gigabytes (10^9 bytes) per second. */
function gigabytes(bytes: number, microseconds: number): number {
  return bytes / microseconds / 1000
}
