import { measureKernels } from '../kernels/command.mjs'
import { measureMemory } from '../memory/command.mjs'
import { measureOverlap } from '../overlap/command.mjs'
import { measurePingPong } from '../ping-pong/command.mjs'
import { formatRecords } from '../figures.mjs'

const MIB = 2 ** 20

/**
 * What the page shows beside collectives, in the order of the page.
 *
 * @type {Readonly<Record<string, { title: string, about: string, measure: (folder: string) =>
 *   Promise<readonly Readonly<Record<string, string | number | null>>[]> }>>}
 */
const measurements = {
  'ping-pong': {
    title: 'Round trip of 64 bytes',
    about:
      'Two ranks over TCP on the loopback, beside a C program that does nothing else (blocking reads and writes, `TCP_NODELAY`).',
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
      'a += b on float32, WebAssembly SIMD beside a C loop (`cc -O3`): 64 KiB from the caches, 64 MiB from memory. GB/s of what is read and written.',
    measure: (folder) => measureKernels(folder, { sizes: [64 * 1024, 64 * MIB], runs: 5 }),
  },
  overlap: {
    title: 'Overlap',
    about:
      'An all-reduce of 64 MiB beside a computation on the main thread, worker engine: `hidden` is the share of its own time that does not come on top. Each rank has two busy threads then; without a core for each there is nothing to hide in.',
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
      'Growth of the resident memory over so many operations, after as many as a fifth of them; and how much more is resident in a rank with so many peers than in one with a single peer, after messages with all of them.',
    measure: () =>
      measureMemory({ operations: 100_000, peers: 64, transports: ['shared-memory', 'tcp'] }),
  },
}

export const sectionNames = Object.keys(measurements)

/**
 * Measures them one after the other; one that fails is left out, with a word on stderr.
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
      sections.push({ title, text: `${about}\n\n${formatRecords(await measure(folder))}` })
    } catch (error) {
      failures++
      console.error(error instanceof Error ? error.message : error)
    }
  }
  return { sections, failures }
}
