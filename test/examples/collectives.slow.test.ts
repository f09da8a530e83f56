import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { runScript } from '../launcher/support/script.ts'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../', import.meta.url))

interface Shown {
  result: Record<string, unknown>
  lines: string[]
}

/** Runs an example to its good end: its result, and the lines before. */
async function example(nproc: number, ...args: [string, ...string[]]): Promise<Shown> {
  const [script, ...flags] = args
  const stdout = await runScript(nproc, `examples/${script}`, ...flags)
  const lines = stdout.trimEnd().split('\n')
  const [, json] = /^result (\{.*\})$/.exec(lines.pop()!)!
  return { result: JSON.parse(json!) as Record<string, unknown>, lines }
}

describe('collectives.ts', () => {
  it("shows the lecture's buffers before and after, rank by rank", async () => {
    const { result, lines } = await example(4, 'collectives.ts')
    const total = [6, 10, 14, 18]
    const root = [0, 1, 2, 3]
    const ofRoot = { broadcast: root, gather: root, reduce: total }
    const ofAll = { allReduce: total, gathered: total, isSame: true }
    expect(result).toEqual({ ranks: 4, ...ofRoot, ...ofAll })
    const own = (rank: number): number[] => total.map((_, i) => i + rank)
    const onRoot = (values: number[], otherwise?: number[]) => (rank: number) =>
      rank === 0 ? values : otherwise
    const blocks = [
      ['before broadcast', onRoot(root, [-1, -1, -1, -1])],
      ['after broadcast', () => root],
      ['before scatter', onRoot(root, [-1])],
      ['after scatter', (rank: number) => [rank]],
      ['before gather', (rank: number) => [rank]],
      ['after gather', onRoot(root)],
      ['before reduce', own],
      ['after reduce', onRoot(total)],
      ['before all-reduce', own],
      ['after all-reduce', () => total],
      ['before reduce-scatter', own],
      ['after reduce-scatter', (rank: number) => [total[rank]]],
      ['before all-gather', (rank: number) => [total[rank]]],
      ['after all-gather', () => total],
    ] as const
    const expected = blocks.flatMap(([when, valuesOf]) => [
      ...total.map(
        (_, rank) => `rank ${rank} [${when}]: ${valuesOf(rank)?.join(', ') ?? 'nothing'}`,
      ),
      '',
    ])
    expect(lines.slice(0, -1)).toEqual(expected)
    expect(lines.at(-1)).toBe('all-reduce of the same input is reduce-scatter + all-gather')
  })

  it.each(['shared-memory', 'tcp', 'node'])('runs over %s', async (transport) => {
    const { result } = await example(2, 'collectives.ts', '--transport', transport)
    const ofRoot = { broadcast: [0, 1], gather: [0, 1], reduce: [1, 3, 5, 7] }
    const ofAll = { allReduce: [1, 3, 5, 7], gathered: [1, 3], isSame: true }
    expect(result).toEqual({ ranks: 2, ...ofRoot, ...ofAll })
  })

  it('runs with one rank', async () => {
    const { result } = await example(1, 'collectives.ts')
    const own = [0, 1, 2, 3]
    const ofRoot = { broadcast: [0], gather: [0], reduce: own }
    expect(result).toEqual({ ranks: 1, ...ofRoot, allReduce: own, gathered: [0], isSame: true })
  })
})

describe('benchmark-collectives.ts', () => {
  const small = ['--elements', '100000', '--repeats', '2'] as const

  it('prints busbw and both bandwidths of the lecture, and why they differ', async () => {
    const { result, lines } = await example(4, 'benchmark-collectives.ts', ...small)
    const figure = (name: string): number => Number(result[name])
    expect(result).toMatchObject({ elements: 100_000, ranks: 4, device: 'none' })
    expect(figure('allReduceSpoken')).toBe(figure('allReduceBusbw'))
    expect(figure('allReduceCode')).toBe(figure('allReduceBusbw'))
    expect(figure('reduceScatterCode')).toBe(figure('reduceScatterBusbw'))
    expect(figure('reduceScatterBusbw') / figure('reduceScatterSpoken')).toBeCloseTo(4, 1)
    const seconds = figure('allReduceSeconds')
    const sent = (100_000 * 4 * 2 * 3) / (4 * seconds) / 2 ** 30
    expect(figure('allReduceBusbw') / sent).toBeCloseTo(1, 2)
    expect(lines.join(' ')).toContain('the code gets busbw, the words get 1/4 of it')
    expect(lines.join(' ')).toContain('277 / 4 = 69')
  })

  it('shows each run while it measures, and a line for each rank', async () => {
    const { lines } = await example(2, 'benchmark-collectives.ts', ...small)
    for (const name of ['all_reduce', 'reduce_scatter']) {
      const runs = lines.filter((line) => line.startsWith(`${name} of 100,000 elements: `))
      expect(runs.map((line) => / (warm-up|run \d of 2) took /.exec(line)?.[1])).toEqual([
        'warm-up',
        'run 1 of 2',
        'run 2 of 2',
      ])
      const own = lines.indexOf(`${name}(world_size=2, num_elements=100000)`)
      expect(own).toBeGreaterThan(-1)
      for (const rank of [0, 1]) {
        expect(lines[own + 1 + rank]).toMatch(new RegExp(`^rank ${rank} took [\\d.]+ ms$`))
      }
    }
  })

  it('measures tensors on the device of --device', async () => {
    const flags = [...small, '--device', 'wasm'] as const
    const { result, lines } = await example(2, 'benchmark-collectives.ts', ...flags)
    expect(result).toMatchObject({ device: 'wasm' })
    expect(lines.join('\n')).toContain('num_elements=100000, device=wasm)')
  })

  it('refuses more elements than fit into an arena', async () => {
    const job = ['--nproc', '2', 'examples/benchmark-collectives.ts', '--elements', '500000000']
    const { code, stderr } = await tsrun(job, { cwd })
    expect({ code, stderr }).toEqual({ code: 2, stderr })
    expect(stderr).toContain('--elements is "500000000"; expected a whole number from 1')
  })
})
