import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { whyNoLink } from '../../scripts/bench/training/link.mjs'
import { summarize } from '../../scripts/bench/training/report.mjs'
import { bench } from './support/bench.ts'

jest.setTimeout(180_000)

const few = ['--workloads', 'mlp-16x128', '--runs', '1', '--repeats', '2']

function rowsOf(stdout: string): Record<string, unknown>[] {
  const lines = stdout.trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>)
}

it('measures each way of training on as many ranks, and skips what is not there', async () => {
  // A home without a set-up.
  const home = mkdtempSync(join(tmpdir(), 'tsrun-home-'))
  try {
    const what = ['--json', '--peers', 'torch', '--ranks', '1,2', ...few]
    const env = { TSRUN_HOME: home, TSRUN_BENCH_PYTHON: '' }
    const { code, stdout, stderr } = await bench(['training', ...what], env)
    expect(stderr).toContain('skipped: no torch (set TSRUN_BENCH_PYTHON)\n')
    expect(stderr).toMatch(/skipped: no tensorflow \(.*tsrun setup tensorflow/)
    expect(code).toBe(0)
    const rows = rowsOf(stdout)
    const modes = ['alone', 'ddp', 'ddp-sequential', 'ddp-silent', '1f1b']
    expect(rows).toMatchObject(
      modes.map((mode) => ({
        ...{ workload: 'mlp-16x128', mode, ranks: mode === 'alone' ? 1 : 2 },
        ...{ system: 'wasm', device: 'CPU', threads: 1, ratioToTorch: null },
      })),
    )
    for (const row of rows) {
      expect(row['stepMs']).toBeGreaterThan(0)
      expect(row['speedup']).toBeGreaterThan(0)
      const travels = row['mode'] === 'ddp' || row['mode'] === 'ddp-sequential'
      expect(typeof row['exposedMs']).toBe(travels ? 'number' : 'object')
    }
  } finally {
    rmSync(home, { recursive: true })
  }
})

it('measures torch in the same run, where there is one', async () => {
  if ((process.env['TSRUN_BENCH_PYTHON'] ?? '') === '') {
    console.log('skipped: no torch (set TSRUN_BENCH_PYTHON)')
    return
  }
  const what = ['--json', '--peers', 'torch', '--backends', 'wasm', '--ranks', '2', ...few]
  const { code, stdout, stderr } = await bench(['training', ...what])
  expect({ code, stderr }).toEqual({ code: 0, stderr })
  const rows = rowsOf(stdout).filter(({ mode }) => mode === 'ddp' || mode === '1f1b')
  expect(rows.map(({ system, mode }) => `${String(system)} ${String(mode)}`)).toEqual([
    'wasm ddp',
    'wasm 1f1b',
    'torch ddp',
    'torch 1f1b',
  ])
  for (const row of rows) expect(row['ratioToTorch']).toBeGreaterThan(0)
})

it('measures over a link that is slower than memory', async () => {
  const reason = whyNoLink('100mbit')
  if (reason !== undefined) {
    console.log(`skipped: no link (${reason})`)
    return
  }
  // 16 layers of 128 x 128 are 1 MiB, which two ranks send twice, and the first of it passes at once
  const what = ['--json', '--backends', 'wasm', '--ranks', '2', '--link', '200mbit', ...few]
  const { code, stdout, stderr } = await bench(['training', ...what])
  expect({ code, stderr }).toEqual({ code: 0, stderr })
  const row = rowsOf(stdout).find(({ mode }) => mode === 'ddp-sequential')!
  expect(row).toMatchObject({ link: '200mbit', ranks: 2 })
  expect(row['exposedMs']).toBeGreaterThan(40)
})

it('summarizes by medians: multiples of torch, speedup, and what the gradients add', () => {
  const round = (system: string, ranks: number, ...steps: [mode: string, ...ms: number[]][]) => {
    const samples = steps.map(([mode, ...ms]) => ({ workload: 'net', mode, ms }))
    return { system, ranks, device: 'CPU', threads: 1, samples }
  }
  const rows = summarize([
    round('wasm', 1, ['alone', 40, 42, 900]),
    round('wasm', 2, ['ddp', 30], ['ddp-silent', 20]),
    round('wasm', 2, ['ddp', 26], ['ddp-silent', 22]),
    round('torch', 2, ['ddp', 56]),
  ])
  expect(rows).toMatchObject([
    { mode: 'alone', stepMs: 42, speedup: 1, ratioToTorch: null, exposedMs: null },
    { mode: 'ddp', stepMs: 28, speedup: 1.5, ratioToTorch: 0.5, exposedMs: 7 },
    { mode: 'ddp-silent', stepMs: 21, speedup: 2, ratioToTorch: null, exposedMs: null },
    { system: 'torch', mode: 'ddp', stepMs: 56, speedup: null, ratioToTorch: 1, exposedMs: null },
  ])
})

it.each([
  [['--backends', 'wasn'], '--backends: unknown "wasn"; did you mean wasm?'],
  [['--workloads', 'matmul-1024'], '--workloads: unknown "matmul-1024"'],
  [['--ranks', '3'], '--ranks: unknown "3"'],
  [['--link', 'fast'], '--link must be like 500mbit or 4gbit, not "fast"'],
  [['--batch', 'all'], '--batch must be an integer from 8 to 65536, not "all"'],
  [['--bucket', '0'], '--bucket must be an integer from 1'],
  [['--repeats', '0'], '--repeats must be an integer from 1'],
  [['--peers', 'openmpi'], '--peers: unknown "openmpi"'],
])('refuses %j', async (args, message) => {
  const { code, stderr } = await bench(['training', ...args])
  expect({ code, stderr }).toEqual({ code: 2, stderr })
  expect(stderr).toContain(message)
})
