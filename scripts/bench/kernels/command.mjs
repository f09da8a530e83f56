import { formatBytes } from '@tsrun/core'
import { instantiateKernels } from '../../../packages/distributed/dist/kernels.js'
import { readInteger, splitList, UsageError } from '../command-line.mjs'
import { compile, RunError, runProgram, withFolder } from '../programs.mjs'
import { formatRecords, median, parseSize, printRows, significant } from '../figures.mjs'

const source = new URL('./add.c', import.meta.url)
const PAGE = 65536
const LARGEST = 2 ** 30

/** @type {import('../command-line.mjs').Command} */
export const kernels = {
  summary: 'float32 add of the reduction kernels, compared with a C loop (cc -O3)',
  options: {
    sizes: { value: '<list>', default: '64KiB,64MiB', description: 'of each of the two arrays' },
    runs: { value: '<n>', default: '5', description: 'rounds; ours and C take turns' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const sizes = splitList(values['sizes']).map(parseSize)
    if (sizes.length === 0) throw new UsageError('--sizes is empty')
    if (sizes.some((bytes) => bytes > LARGEST)) throw new UsageError('--sizes: at most 1GiB')
    const runs = readInteger('runs', values['runs'], 1, 100)
    const rows = await withFolder((folder) => measureKernels(folder, { sizes, runs }))
    printRows(rows, values.json !== undefined, formatRecords)
    return 0
  },
}

/**
 * @param {string} folder - for what is compiled
 * @param {{ sizes: readonly number[], runs: number }} options - bytes of an array
 */
export async function measureKernels(folder, { sizes, runs }) {
  const program = await compile(source, folder)
  const rows = []
  for (const size of sizes) {
    const count = Math.max(1, Math.floor(size / 4))
    const repeats = Math.max(5, Math.min(2000, Math.floor(2 ** 28 / size)))
    const add = ourAdd(count)
    const ours = []
    const theirs = []
    for (let round = 1; round <= runs; round++) {
      ours.push(median(Array.from({ length: repeats }, add)))
      if (program === undefined) continue
      const text = await runProgram('the C loop', {
        command: program,
        args: [String(count), String(repeats)],
      })
      theirs.push(median(text.trim().split('\n').map(Number)))
    }
    // Two arrays are read and one is written.
    const rate = (/** @type {readonly number[]} */ us) =>
      us.length === 0 ? null : significant((3 * count * 4) / median(us) / 1e3)
    const [kernelGBs, cGBs] = [rate(ours), rate(theirs)]
    const ratio = kernelGBs === null || cGBs === null ? null : significant(kernelGBs / cGBs, 3)
    rows.push({ array: formatBytes(count * 4), kernelGBs, cGBs, ratio })
  }
  return rows
}

/**
 * @param {number} count
 * @returns {() => number} adds once; microseconds
 */
function ourAdd(count) {
  const bytes = Math.ceil((count * 4) / 64) * 64
  const pages = Math.ceil((2 * bytes) / PAGE) + 1
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
  const { combine } = instantiateKernels(memory)
  // The kernels may keep tables at the start.
  const [a, b] = [PAGE, PAGE + bytes]
  const sum = new Float32Array(memory.buffer, a, count)
  new Float32Array(memory.buffer, b, count).fill(1)
  combine('sum', 'float32', a, a, b, count)
  if (sum[0] !== 1 || sum[count - 1] !== 1) throw new RunError('the kernel adds wrongly')
  return () => {
    const start = performance.now()
    combine('sum', 'float32', a, a, b, count)
    return (performance.now() - start) * 1e3
  }
}
