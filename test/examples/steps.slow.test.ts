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

const steps = [
  {
    ...{ args: ['01-monolith.ts', '--batch', '256'], ranks: 1 },
    keys: ['loss', 'msPerStep'],
  },
  {
    ...{ args: ['02-manual-split.ts', '--cut', '5', '--batch', '256'], ranks: 1 },
    keys: ['loss', 'maxDifference', 'msPerStep'],
  },
  {
    ...{ args: ['03-ping-pong.ts'], ranks: 2 },
    keys: ['latencyUs', 'latencyP99Us', 'bandwidthGBs', 'evenBytes'],
  },
]

it.each(steps)('$args.0 prints its result in the last line', async ({ args, ranks, keys }) => {
  expectFigures(await resultOf(ranks, args), keys)
})

it('pipeline.ts with its default flags recognizes 95.5 % of the digits', async () => {
  const result = await resultOf(4, ['pipeline.ts'])
  expectFigures(result, ['accuracy', 'bubble', 'predictedBubble'])
  expect(result['accuracy']).toBeGreaterThanOrEqual(0.955)
})
