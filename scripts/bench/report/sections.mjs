import { measureKernels } from '../kernels/command.mjs'
import { measureLimits } from '../limits/command.mjs'
import { measureMemory } from '../memory/command.mjs'
import { measureOverlap } from '../overlap/command.mjs'
import { measurePingPong } from '../ping-pong/command.mjs'
import { formatRecords } from '../figures.mjs'

const MIB = 2 ** 20

/**
 * What the page shows besides collectives, in the order of the page.
 *
 * @type {Readonly<Record<string, { title: string, about: string, measure: (folder: string) =>
 *   Promise<readonly Readonly<Record<string, string | number | null>>[]> }>>}
 */
const measurements = {
  'ping-pong': {
    title: 'Round trip of 64 bytes',
    about:
      'Two ranks over TCP on the loopback, compared with a C program that does nothing else (blocking reads and writes, `TCP_NODELAY`).',
    measure: (folder) =>
      measurePingPong(folder, {
        bytes: 64,
        systems: ['inline', 'worker'].map((engine) => ({ transport: 'tcp', engine })),
        repeats: 3000,
        runs: 3,
      }),
  },
  kernels: {
    title: 'Reduction kernels',
    about:
      '`a += b` on float32: WebAssembly SIMD compared with a C loop (`cc -O3`), with 64 KiB from the caches and 64 MiB from memory. The figures are GB/s of what is read and written.',
    measure: (folder) => measureKernels(folder, { sizes: [64 * 1024, 64 * MIB], runs: 5 }),
  },
  limits: {
    title: 'Limits',
    about:
      'What the bandwidth of the memory allows: `limitUs` is the time in which the ranks could move what the operation reads and writes, if they did nothing but copy and add, at the rate of the same number of C programs running together (`copyGBs`, `addGBs`). `share` is that as a share of the measured time.',
    measure: async () =>
      (await measureLimits({
        ranks: 4,
        ops: ['allReduce', 'reduceScatter', 'allGather', 'broadcast'],
        sizes: [64 * MIB],
        engines: ['inline'],
        runs: 3,
      })) ?? [],
  },
  overlap: {
    title: 'Overlap',
    about:
      'An all-reduce of 64 MiB by the worker engine during a computation on the main thread. `hidden` is the share of the time of the all-reduce that does not add to the time of the computation. Each rank then has two busy threads; without a core for each of them, nothing can be hidden.',
    measure: () =>
      measureOverlap({
        ranks: 2,
        bytes: 64 * MIB,
        transports: ['shared-memory', 'tcp'],
        repeats: 5,
        runs: 1,
      }),
  },
  memory: {
    title: 'Memory',
    about:
      'The growth of the resident memory over that many operations, after a fifth as many to warm up; and how much more memory is resident in a rank with that many peers than in a rank with a single peer, after messages with all of them.',
    measure: () =>
      measureMemory({ operations: 100_000, peers: 64, transports: ['shared-memory', 'tcp'] }),
  },
}

export const sectionNames = Object.keys(measurements)

/**
 * Measures them one after the other. If one fails, its error is printed on stderr and it is left out.
 *
 * @param {readonly string[]} names
 * @param {string} folder - for what is compiled
 */
export async function measureSections(names, folder) {
  const sections = []
  let failures = 0
  for (const name of names) {
    const measurement = measurements[name]
    if (measurement === undefined) continue
    console.error(`measuring: ${name}`)
    try {
      const { title, about, measure } = measurement
      const records = await measure(folder)
      if (records.length > 0)
        sections.push({ title, text: `${about}\n\n${formatRecords(records)}` })
    } catch (error) {
      failures++
      console.error(error instanceof Error ? error.message : error)
    }
  }
  return { sections, failures }
}
