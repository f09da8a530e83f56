import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { whyNoLink } from '../../scripts/bench/training/link.mjs'
import { bench, rowsIn, rowsOf } from './support/bench.ts'
import { needing } from '../needs.ts'

jest.setTimeout(240_000)

const number: unknown = expect.any(Number)
const hasTorch = (process.env['TSRUN_BENCH_PYTHON'] ?? '') !== ''
const { it: itOnTorch } = needing(hasTorch, 'torch (set TSRUN_BENCH_PYTHON)')

it('generation reports the times with and without a cache', async () => {
  const few = ['generation', '--runs', '1', '--tokens', '4', '--layers', '1', '--width', '8']
  expect(await rowsOf(few)).toMatchObject([
    { system: 'wasm', tokens: 4, cachedMs: number, wholeMs: number, faster: number },
  ])
})

itOnTorch('generation and checkpoint measure torch in the same run', async () => {
  const few = ['--runs', '1', '--peers', 'torch']
  const text = ['--tokens', '4', '--layers', '1', '--width', '8', '--cache-only']
  const generated = await rowsOf(['generation', ...few, ...text])
  expect(generated).toMatchObject([
    { system: 'wasm', wholeMs: null, ratioToTorch: number },
    { system: 'torch', wholeMs: null, ratioToTorch: 1 },
  ])
  const saved = await rowsOf(['checkpoint', ...few, '--size', '12MB', '--saves', '1'])
  expect(saved.map(({ system }) => system)).toEqual(['wasm', 'torch'])
})

it('checkpoint reports the stall of a background save, and what the steps during it take', async () => {
  const few = ['--runs', '1', '--size', '24MB', '--saves', '2', '--quiet', '3']
  const [row] = await rowsOf(['checkpoint', ...few])
  expect(row).toMatchObject({ system: 'wasm', megabytes: 25.2, excessMs: number })
  for (const key of ['firstStallMs', 'stallMs', 'stepMs']) {
    expect(row![key]).toBeGreaterThan(0)
  }
  const sharded = await rowsOf(['checkpoint', ...few, '--ranks', '2', '--zero', '1'])
  expect(sharded).toMatchObject([{ system: 'wasm, 2 ranks, ZeRO 1', excessMs: number }])
})

it('nodes compares a figure of another command between versions of Node', async () => {
  const command = 'kernels --runs 1 --sizes 64KiB'
  const few = ['--versions', process.execPath, '--runs', '1', '--figure', 'kernelGBs']
  const { version } = process
  expect(await rowsOf(['nodes', '--command', command, ...few])).toEqual([
    { name: '64 KiB', figures: { [version]: number }, ratios: { [version]: 1 } },
  ])
})

it('nodes says what fails under a version, and which column is missing', async () => {
  const few = ['nodes', '--versions', process.execPath, '--runs', '1', '--figure', 'furlongs']
  const wrong = await bench([...few, '--command', 'kernels --sizes parsecs'])
  expect(wrong.code).toBe(1)
  expect(wrong.stderr).toContain('"parsecs" is not a size')
  const none = await bench([...few, '--command', 'kernels --runs 1 --sizes 64KiB'])
  expect(none).toMatchObject({ code: 1, stdout: '' })
  expect(none.stderr).toContain('no row of the command has the column furlongs')
})

it('steps measures each backend that loads, and skips others with the reason', async () => {
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
    const rows = rowsIn(stdout)
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

it('steps measures batch normalization forward and backward', async () => {
  const few = ['--workloads', 'batchnorm-32', '--backends', 'wasm-alone', '--runs', '1']
  const [row] = await rowsOf(['steps', ...few])
  expect(row).toMatchObject({ system: 'wasm-alone', updateMs: null, gflops: null, share: null })
  expect(row!['backwardMs']).toBeGreaterThan(0)
})

describe('training', () => {
  const few = ['--workloads', 'mlp-16x128', '--runs', '1', '--repeats', '2']

  it('measures each mode on the same number of ranks, and skips missing backends', async () => {
    // A home without a set-up.
    const home = mkdtempSync(join(tmpdir(), 'tsrun-home-'))
    try {
      const what = ['--json', '--peers', 'torch', '--ranks', '1,2', ...few]
      const env = { TSRUN_HOME: home, TSRUN_BENCH_PYTHON: '' }
      const { code, stdout, stderr } = await bench(['training', ...what], env)
      expect(stderr).toContain('skipped: no torch (set TSRUN_BENCH_PYTHON)\n')
      expect(stderr).toMatch(/skipped: no tensorflow \(.*tsrun setup tensorflow/)
      expect(code).toBe(0)
      const rows = rowsIn(stdout)
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

  it('measures replicas of a GPT, but no pipeline of it', async () => {
    const gpt = ['--workloads', 'gpt-4x64', '--runs', '1', '--repeats', '1']
    const rows = await rowsOf(['training', '--backends', 'wasm', '--ranks', '2', ...gpt])
    const modes = ['ddp', 'ddp-sequential', 'ddp-silent']
    expect(rows).toMatchObject(modes.map((mode) => ({ workload: 'gpt-4x64', mode, ranks: 2 })))
  })

  itOnTorch('measures torch in the same run', async () => {
    const what = ['--peers', 'torch', '--backends', 'wasm', '--ranks', '2', ...few]
    const all = await rowsOf(['training', ...what])
    const rows = all.filter(({ mode }) => mode === 'ddp' || mode === '1f1b')
    expect(rows.map(({ system, mode }) => `${String(system)} ${String(mode)}`)).toEqual([
      'wasm ddp',
      'wasm 1f1b',
      'torch ddp',
      'torch 1f1b',
    ])
    for (const row of rows) expect(row['ratioToTorch']).toBeGreaterThan(0)
  })

  const noLink = whyNoLink('100mbit')
  const { it: itOnLink } = needing(noLink === undefined, `link (${noLink})`)
  itOnLink('measures over an emulated slow link', async () => {
    // 16 layers of 128 x 128 are 1 MiB, which two ranks send twice, and the first of it passes at once
    const what = ['--backends', 'wasm', '--ranks', '2', '--link', '200mbit', ...few]
    const rows = await rowsOf(['training', ...what])
    const row = rows.find(({ mode }) => mode === 'ddp-sequential')!
    expect(row).toMatchObject({ link: '200mbit', ranks: 2 })
    // The 2 MiB alone take 84 ms, less what passes in the burst. A loaded machine only adds to it.
    expect(row['stepMs']).toBeGreaterThan(15)
  })
})
