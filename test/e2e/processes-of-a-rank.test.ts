import { join } from 'node:path'
import { fixtures, killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

const cwd = join(fixtures, '../distributed')

it('a worker thread of a rank joins without a warning of Node', async () => {
  const { code, stdout, stderr } = await tsrun(['--nproc', '2', '--no-summary', 'in-worker.mjs'], {
    cwd,
  })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(stdout.match(/in a worker: 3$/gm)).toHaveLength(2)
})

it('a program that a rank starts is told that it has inherited RANK', async () => {
  const { code, stdout } = await tsrun(['--nproc', '2', '--no-summary', 'child-joins.mjs'], { cwd })
  expect(code).toBe(0)
  expect(stdout).toContain(
    'RANK is 0, which this program has inherited from a rank that has started it; expected no such variable',
  )
})

it('a wrong TSRUN_LOG_LEVEL is refused, and an empty one is ignored', async () => {
  const of = (level: string) => tsrun(['hello.mjs'], { env: { TSRUN_LOG_LEVEL: level } })
  const { code, stderr } = await of('nonsense')
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr: expect.stringContaining(
      'TSRUN_LOG_LEVEL is "nonsense"; expected one of "trace", "debug"',
    ),
  })
  expect((await of('')).code).toBe(0)
})
