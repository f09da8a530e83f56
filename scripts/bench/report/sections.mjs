import { measureCheckpoint } from '../checkpoint/command.mjs'
import { measureGeneration } from '../generation/command.mjs'
import { measureKernels } from '../kernels/command.mjs'
import { measureLimits } from '../limits/command.mjs'
import { measureMemory } from '../memory/command.mjs'
import { measureOverlap } from '../overlap/command.mjs'
import { measurePingPong } from '../ping-pong/command.mjs'
import { measureSteps } from '../steps/command.mjs'
import { workloads } from '../steps/workloads.mjs'
import { measureTraining } from '../training/command.mjs'
import { replicated } from '../training/plan.mjs'
import { formatRecords } from '../figures.mjs'

const MIB = 2 ** 20

/**
 * @typedef {readonly Readonly<Record<string, string | number | null>>[]} Records
 *
 * @typedef {object} Measurement
 * @property {string} title
 * @property {string} about
 * @property {(folder: string) => Promise<Records | { rows: Records, failures: number }>} measure
 */

/**
 * What the page shows besides collectives, in the order of the page.
 *
 * @type {Readonly<Record<string, Measurement>>}
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
  steps: {
    title: 'Training steps',
    about:
      'One process with one thread, in milliseconds. `wasm` has the products of a BLAS if there is one, `wasm-alone` has not. `share` is what limits a step: the time in which the host can compute its products, at the highest rate of `matmul-1024`, as a share of the step. `gpt2-small` and `batchnorm-32` are a forward and a backward pass. `ratioToTorch` is that of `stepMs`; below 1, ours is faster.',
    measure: () =>
      measureSteps({
        ours: ['tensorflow', 'wasm', 'wasm-alone'],
        peers: ['torch'],
        what: workloads,
        runs: 1,
      }),
  },
  training: {
    title: 'Data parallel steps',
    about:
      'Replicas with one thread each, compared with DistributedDataParallel of PyTorch over gloo. `speedup` compares with one process of the same system, and `exposedMs` is what the exchange of gradients adds to a step.',
    measure: () =>
      measureTraining({
        ours: ['tensorflow', 'wasm'],
        peers: ['torch'],
        sizes: [1, 2],
        what: {
          workloads: replicated.filter(({ name }) => trained.includes(name)),
          ...{ bucketMiB: 25, engine: 'auto' },
        },
        runs: 1,
      }),
  },
  generation: {
    title: 'Generation',
    about:
      'A `GPT` of 6 blocks of 128 that generates 256 tokens on one thread: with keys and values kept (`cachedMs`), and by running the whole text again for each token (`wholeMs`). `ratioToTorch` is that of `tokensPerSecond`; above 1, ours is faster.',
    measure: () =>
      measureGeneration({
        ours: ['tensorflow', 'wasm'],
        peers: ['torch'],
        plan: { layers: 6, width: 128, heads: 4, vocabulary: 256, tokens: 256, whole: true },
        runs: 3,
      }),
  },
  checkpoint: {
    title: 'Checkpoints in the background',
    about:
      'Linear layers and the state of Adam are saved while training continues, compared with `async_save` of PyTorch. `stallMs` is the time of the call (`firstStallMs`: of the first), `excessMs` by how much the steps until the end of the save are longer than the median of those before it, summed up. `quietExcessMs` is that of as many steps without a save.',
    measure: () =>
      measureCheckpoint({
        ...{ ours: ['wasm'], peers: ['torch'], bytes: 1e8 },
        ...{ batch: 8, saves: 5, quiet: 20, runs: 3 },
      }),
  },
}

/** What replicas train for the page: a network of large products, transformers and a convolutional one. */
const trained = ['mlp-4x1024', 'gpt-4x64', 'gpt-4x128', 'gpt-6x384', 'cnn-16x32']

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
      const measured = await measure(folder)
      const records = 'rows' in measured ? measured.rows : measured
      if ('rows' in measured) failures += measured.failures
      if (records.length > 0) {
        sections.push({ title, text: `${about}\n\n${formatRecords(records)}` })
      }
    } catch (error) {
      failures++
      console.error(error instanceof Error ? error.message : error)
    }
  }
  return { sections, failures }
}
