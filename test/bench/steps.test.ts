import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { summarize } from '../../scripts/bench/steps/report.mjs'
import { workloads } from '../../scripts/bench/steps/workloads.mjs'
import { bench } from './support/bench.ts'

jest.setTimeout(120_000)

it('measures steps on each backend that loads, and skips the others with the reason', async () => {
  // A home without a set-up.
  const home = mkdtempSync(join(tmpdir(), 'tsrun-home-'))
  try {
    const what = ['--workloads', 'mlp-16x128', '--backends', 'tensorflow,wasm,cpu', '--runs', '1']
    const { code, stdout, stderr } = await bench(['steps', '--json', '--peers', 'torch', ...what], {
      TSRUN_HOME: home,
      TSRUN_BENCH_PYTHON: '',
    })
    expect(stderr).toContain('skipped: no torch (set TSRUN_BENCH_PYTHON)\n')
    expect(stderr).toMatch(/skipped: no tensorflow \(.*tsrun setup tensorflow/)
    expect(code).toBe(0)
    const rows = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(rows).toMatchObject(
      ['wasm', 'cpu'].map((system) => ({
        workload: 'mlp-16x128',
        system,
        device: 'CPU',
        threads: 1,
        ratioToTorch: null,
      })),
    )
    for (const row of rows) {
      for (const key of ['forwardMs', 'backwardMs', 'updateMs', 'stepMs', 'gflops']) {
        expect(row[key]).toBeGreaterThan(0)
      }
    }
  } finally {
    rmSync(home, { recursive: true })
  }
})

it('summarizes by medians, as multiples of torch', () => {
  const product = workloads.find(({ name }) => name === 'matmul-1024')!
  const round = (...ms: number[]) => ({
    device: 'CPU',
    threads: 1,
    samples: [{ workload: product.name, times: ms.map((time) => [time, 0, 0] as const) }],
  })
  const rounds = new Map([
    ['wasm', [round(80, 60, 1000), round(90), round(50)]],
    ['torch', [round(40)]],
  ])
  const [wasm, torch] = summarize(rounds, [product])
  expect(wasm).toMatchObject({ system: 'wasm', stepMs: 80, backwardMs: null, ratioToTorch: 2 })
  expect(wasm!['gflops']).toBeCloseTo((2 * 1024 ** 3) / 0.08 / 1e9, 1)
  expect(torch).toMatchObject({ system: 'torch', stepMs: 40, ratioToTorch: 1 })
})

it.each([
  [['--backends', 'wasn'], '--backends: unknown "wasn"; did you mean wasm?'],
  [['--workloads', ''], '--workloads needs a value'],
  [['--peers', 'openmpi'], '--peers: unknown "openmpi"'],
  [['--runs', '0'], '--runs must be an integer from 1'],
])('refuses %j', async (args, message) => {
  const { code, stderr } = await bench(['steps', ...args])
  expect({ code, stderr }).toEqual({ code: 2, stderr })
  expect(stderr).toContain(message)
})
