import { jest } from '@jest/globals'
import { bench } from './support/bench.ts'

jest.setTimeout(120_000)

it('measures ranks of ours and skips absent peers, one JSON object a line', async () => {
  const what = ['--ops', 'allReduce,allToAll,sendRecv', '--sizes', '4KiB', '--runs', '1']
  const over = ['--transport', 'shared-memory,tcp']
  const { code, stdout, stderr } = await bench(
    ['collectives', '--json', '--ranks', '2', '--peers', 'torch,openmpi', ...what, ...over],
    { TSRUN_BENCH_PYTHON: '', PATH: '/nonexistent' },
  )
  expect(stderr).toContain('skipped: no torch (set TSRUN_BENCH_PYTHON)\n')
  expect(stderr).toContain('skipped: no Open MPI')
  expect(code).toBe(0)

  const rows = stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  expect(rows.map((row) => [row['transport'], row['op']])).toEqual([
    ['shared-memory', 'allReduce'],
    ['shared-memory', 'allToAll'],
    ['shared-memory', 'sendRecv'],
    ['tcp', 'allReduce'],
    ['tcp', 'allToAll'],
    ['tcp', 'sendRecv'],
  ])
  for (const row of rows) {
    const keys = 'op bytes ranks transport engine system p50Us p99Us algbwGBs busbwGBs'
    expect(Object.keys(row)).toEqual(keys.split(' '))
    expect(row).toMatchObject({ bytes: 4096, ranks: 2, engine: 'worker' })
    expect(row['p50Us']).toBeGreaterThan(0)
    expect(row['p99Us']).toBeGreaterThanOrEqual(row['p50Us'] as number)
  }
})

it('says what failed, and how, when the ranks do', async () => {
  const env = { TSRUN_ARENA: 'nonsense' }
  const what = ['--ranks', '2', '--ops', 'allReduce', '--sizes', '4KiB', '--runs', '2']
  const { code, stderr } = await bench(['collectives', ...what], env)
  expect(code).toBe(1)
  expect(stderr).toMatch(/tsrun shared-memory worker failed \(exit code \d+\)\n[^]*TSRUN_ARENA/)
  expect(stderr).not.toContain('round 2')
})
