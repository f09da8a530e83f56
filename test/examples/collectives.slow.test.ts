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
    expect(result).toEqual({ ranks: 4, allReduce: total, gathered: total, isSame: true })
    const own = (rank: number): number[] => total.map((_, i) => i + rank)
    const blocks = [
      ['before all-reduce', own],
      ['after all-reduce', () => total],
      ['before reduce-scatter', own],
      ['after reduce-scatter', (rank: number) => [total[rank]]],
      ['before all-gather', (rank: number) => [total[rank]]],
      ['after all-gather', () => total],
    ] as const
    const expected = blocks.flatMap(([when, valuesOf]) => [
      ...total.map((_, rank) => `rank ${rank} [${when}]: ${valuesOf(rank).join(', ')}`),
      '',
    ])
    expect(lines.slice(0, -1)).toEqual(expected)
    expect(lines.at(-1)).toBe('all-reduce of the same input is reduce-scatter + all-gather')
  })

  it.each(['shared-memory', 'tcp', 'node'])('runs over %s', async (transport) => {
    const { result } = await example(2, 'collectives.ts', '--transport', transport)
    expect(result).toEqual({ ranks: 2, allReduce: [1, 3, 5, 7], gathered: [1, 3], isSame: true })
  })

  it('runs alone', async () => {
    const { result } = await example(1, 'collectives.ts')
    expect(result).toEqual({ ranks: 1, allReduce: [0, 1, 2, 3], gathered: [0], isSame: true })
  })
})

describe('benchmark-collectives.ts', () => {
  it("prints the lecture's account beside busbw, and why they differ", async () => {
    const flags = ['--elements', '100000', '--repeats', '2'] as const
    const { result, lines } = await example(4, 'benchmark-collectives.ts', ...flags)
    const figure = (name: string): number => Number(result[name])
    expect(result).toMatchObject({ elements: 100_000, ranks: 4 })
    expect(figure('allReduceLecture')).toBe(figure('allReduceBusbw'))
    const ratio = figure('reduceScatterBusbw') / figure('reduceScatterLecture')
    expect(ratio).toBeCloseTo(4, 1)
    const seconds = figure('allReduceSeconds')
    const sent = (100_000 * 4 * 2 * 3) / (4 * seconds) / 2 ** 30
    expect(figure('allReduceLecture') / sent).toBeCloseTo(1, 2)
    expect(lines.join(' ')).toContain('so its figure is 1/4 of busbw')
  })

  it('refuses more elements than an arena has room for', async () => {
    const job = ['--nproc', '2', 'examples/benchmark-collectives.ts', '--elements', '500000000']
    const { code, stderr } = await tsrun(job, { cwd })
    expect({ code, stderr }).toEqual({ code: 2, stderr })
    expect(stderr).toContain('--elements is "500000000"; expected a whole number from 1')
  })
})
