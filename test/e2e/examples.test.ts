import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../examples/', import.meta.url))

/** Runs an example to its good end and returns the figures of the last line that rank 0 prints. */
async function resultOf(ranks: number, args: readonly string[]): Promise<Record<string, unknown>> {
  const job = ['--nproc', String(ranks), '--ranks', '0', '--log-format', 'raw', '--no-summary']
  const { code, stdout, stderr } = await tsrun([...job, ...args], { cwd })
  expect({ code, stderr }).toEqual({ code: 0, stderr })
  const last = stdout.trimEnd().split('\n').at(-1)!
  expect(last).toMatch(/^result \{.*\}$/)
  return JSON.parse(last.slice('result '.length)) as Record<string, unknown>
}

function expectFigures(result: Record<string, unknown>, keys: readonly string[]): void {
  expect(Object.keys(result).sort()).toEqual([...keys].sort())
  const figures = Object.values(result).flat()
  expect(figures.filter((figure) => !Number.isFinite(figure))).toEqual([])
}

const lesson = ['loss', 'maxDifference', 'idle', 'ideal', 'peaks']
const steps = [
  {
    ...{ args: ['01-monolith.ts', '--epochs', '1'], ranks: 1 },
    keys: ['accuracy', 'seconds', 'msPerStep'],
  },
  {
    ...{ args: ['02-manual-split.ts', '--steps', '20'], ranks: 1 },
    keys: ['maxDifference', 'loss', 'steps'],
  },
  {
    ...{ args: ['03-ping-pong.ts'], ranks: 2 },
    keys: ['latencyUs', 'latencyP99Us', 'bandwidthGBs', 'evenBytes'],
  },
  { args: ['04-naive.ts'], ranks: 4, keys: lesson },
  { args: ['05-gpipe.ts'], ranks: 4, keys: lesson },
  { args: ['06-1f1b.ts'], ranks: 4, keys: lesson },
]

it.each(steps)('$args.0 ends with its result', async ({ args, ranks, keys }) => {
  expectFigures(await resultOf(ranks, args), keys)
})

describe('pipeline.ts', () => {
  const keys = ['accuracy', 'seconds', 'bubble', 'predictedBubble']
  const short = ['pipeline.ts', '--epochs', '1', '--images', '10000']

  it.each(['naive', 'gpipe', '1f1b'])('runs the schedule %s', async (schedule) => {
    expectFigures(await resultOf(4, [...short, '--schedule', schedule]), keys)
  })

  it.each([1, 2, 3])('runs on %d ranks', async (ranks) => {
    expectFigures(await resultOf(ranks, short), keys)
  })

  it('as it stands learns to read digits', async () => {
    const result = await resultOf(4, ['pipeline.ts'])
    expectFigures(result, keys)
    expect(result['accuracy']).toBeGreaterThanOrEqual(0.955)
  })

  it.each([
    { flags: ['--epoch', '1'], sentence: "Unknown option '--epoch'" },
    { flags: ['--epochs', 'many'], sentence: '--epochs is "many"; expected a whole number from 1' },
    {
      flags: ['--schedule', 'zigzag'],
      sentence: '--schedule is "zigzag"; expected one of naive, gpipe, 1f1b',
    },
  ])('refuses $flags with exit code 2 and a sentence', async ({ flags, sentence }) => {
    const { code, stderr } = await tsrun(['--nproc', '2', 'pipeline.ts', ...flags], { cwd })
    expect({ code, stderr }).toEqual({ code: 2, stderr })
    expect(stderr).toContain(sentence)
  })
})
