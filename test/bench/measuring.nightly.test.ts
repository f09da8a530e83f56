import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawnSync } from 'node:child_process'
import { jest } from '@jest/globals'
import { readTuning } from '../internals/distributed/groups.ts'
import { bench, rowsIn, rowsOf } from './support/bench.ts'
import { needing } from '../needs.ts'

jest.setTimeout(240_000)

const number: unknown = expect.any(Number)

it('ping-pong measures tsrun, and also a C program if there is a compiler', async () => {
  const few = ['ping-pong', '--runs', '1', '--repeats', '50']
  const rows = await rowsOf([...few, '--transport', 'tcp,shared-memory'])
  const ours = rows.slice(-2)
  expect(ours).toMatchObject([
    { system: 'tsrun tcp inline', bytes: 64, p50Us: number },
    { system: 'tsrun shared-memory inline', bytes: 64, p50Us: number },
  ])
  const without = await rowsOf(few, { PATH: '/nonexistent' })
  expect(without).toMatchObject([{ system: 'tsrun tcp inline', timesC: null }])
})

it('join measures the time and the CPU time to join by number of ranks', async () => {
  const row = {
    benchmark: 'join',
    hosts: 1,
    joinedMs: number,
    joiningMs: number,
    totalMs: number,
    rankCpuMs: number,
    launcherCpuMs: number,
    launcherMB: number,
  }
  const rows = await rowsOf(['join', '--ranks', '1,3', '--runs', '1', '--typescript'])
  expect(rows).toEqual([
    { ...row, ranks: 1 },
    { ...row, ranks: 3 },
  ])
})

it('flood measures the cost of a flood of unauthenticated connections, and admits none', async () => {
  const few = ['flood', '--connections', '600', '--rate', '600', '--tls']
  const [data, store] = await rowsOf(few)
  const row = { benchmark: 'flood', tls: true, admitted: 0, ended: 600, connections: 600 }
  expect(data).toMatchObject({ ...row, port: 'data', joiningMs: number })
  expect(store).toMatchObject({ ...row, port: 'store', stepMs: number, ratio: number })
  // the queue of those that have proven nothing, and what a rank has open anyway
  for (const { descriptors } of [data, store] as { descriptors: number }[]) {
    expect(descriptors).toBeLessThan(350)
  }
})

it('observing measures the overhead of traces, the dashboard and metrics', async () => {
  const rows = await rowsOf(['observing', '--steps', '10', '--runs', '1'])
  const row = { benchmark: 'observing', ranks: 2, stepMs: number, ratio: number }
  expect(rows).toEqual(
    ['off', 'trace', 'dashboard', 'metrics'].map((watched) => ({ ...row, watched })),
  )
})

it('kernels measures our kernels even without a compiler', async () => {
  const few = ['kernels', '--runs', '1', '--sizes', '64KiB']
  expect(await rowsOf(few)).toMatchObject([{ array: '64 KiB', kernelGBs: number }])
  expect(await rowsOf(few, { PATH: '/nonexistent' })).toMatchObject([
    { array: '64 KiB', kernelGBs: number, cGBs: null, ratio: null },
  ])
})

const hasCompiler = spawnSync('cc', ['--version']).status === 0

needing(hasCompiler, 'C compiler').it(
  'limits reports each collective as a share of the memory bandwidth',
  async () => {
    const few = ['limits', '--ranks', '2', '--runs', '1', '--sizes', '1MiB']
    const { code, stdout, stderr } = await bench([...few, '--ops', 'allReduce,broadcast', '--json'])
    expect({ code, stderr }).toMatchObject({ code: 0 })
    const rows = rowsIn(stdout)
    expect(rows.map(({ op }) => op)).toEqual(['allReduce', 'broadcast'])
    for (const row of rows) {
      for (const key of ['copyGBs', 'addGBs', 'p50Us', 'limitUs', 'share']) {
        expect(row[key]).toBeGreaterThan(0)
      }
    }
  },
)

it('overlap reports the share of the communication that is hidden', async () => {
  const few = ['overlap', '--runs', '1', '--repeats', '2', '--size', '1MiB']
  const rows = await rowsOf([...few, '--transport', 'tcp'])
  expect(rows).toMatchObject([
    { transport: 'tcp', ranks: 2, communicationMs: number, bothMs: number, hidden: number },
  ])
})

it('scale measures this machine, and compares its predictions with measurements', async () => {
  const what = ['--op', 'allReduce', '--size', '4KiB', '--check', '2']
  const rows = (await rowsOf(['scale', ...what])) as { transport: string; ratio: number }[]
  expect(new Set(rows.map(({ transport }) => transport))).toEqual(new Set(['shared-memory', 'tcp']))
  for (const { ratio } of rows) expect(ratio).toBeGreaterThan(0)
})

describe('where', () => {
  const parts = ['batch', 'forward', 'backward', 'alloc', 'pack', 'call', 'waiting', 'transfer']
  parts.push('wakeUp', 'reduce', 'unpack', 'update')

  it('divides the steps of every layout into parts, nearly without unexplained time', async () => {
    const few = ['--parts', 'steps', '--workloads', 'mlp-16x128', '--repeats', '3']
    const all = (await rowsOf(['where', ...few, '--backend', 'wasm'])) as Record<string, number>[]
    const rows = all.filter((row) => row['stepMs'] !== undefined)
    expect(all.slice(rows.length)).toMatchObject([
      { layout: 'dp2', exposedMs: number, warmMs: number },
    ])
    const layouts = ['single', 'dp2', 'zero1', 'zero2', 'zero3', 'tp2', 'pp2', 'dp2-pp2']
    expect(rows.map(({ layout }) => layout)).toEqual(layouts)
    for (const row of rows) {
      const named = parts.reduce((sum, part) => sum + row[`${part}Ms`]!, 0)
      const whole = named + row['unexplained']! * row['stepMs']!
      expect(whole / row['stepMs']!).toBeCloseTo(1, 1)
      for (const part of ['forward', 'backward', 'update']) {
        expect(row[`${part}Ms`]).toBeGreaterThan(0)
      }
    }
    // a machine that is busy with something else can hold up a layout, but not most of them
    const rests = rows.map((row) => row['unexplained']!).sort((a, b) => a - b)
    expect(rests[rests.length / 2]).toBeLessThan(0.2)
    const [single, ...shared] = rows
    expect(single).toMatchObject({ packMs: 0, callMs: 0, waitingMs: 0, transferMs: 0 })
    for (const row of shared) {
      expect(row['callMs']).toBeGreaterThan(0)
      expect(row['waitingMs']! + row['transferMs']!).toBeGreaterThan(0)
      expect(row['toHostBytes']).toBeGreaterThan(4)
    }
  })

  it('divides an all-reduce into parts, with either engine', async () => {
    const few = ['--parts', 'all-reduce', '--ranks', '2', '--sizes', '4KiB,1MiB', '--repeats', '20']
    const rows = (await rowsOf(['where', ...few])) as Record<string, number>[]
    expect(rows).toMatchObject([
      { size: '4 KiB', ranks: 2, engine: 'inline' },
      { size: '1 MiB', ranks: 2, engine: 'inline' },
      { size: '4 KiB', ranks: 2, engine: 'worker' },
      { size: '1 MiB', ranks: 2, engine: 'worker' },
    ])
    for (const row of rows) {
      const names = ['arguments', 'handOver', 'waiting', 'transfer', 'kernel', 'return']
      const sum = names.reduce((total, name) => total + row[`${name}Us`]!, 0)
      expect(sum / row['wholeUs']!).toBeCloseTo(1, 1)
    }
  })

  it('compares first calls with warm calls', async () => {
    const few = ['--parts', 'first-calls', '--ranks', '2', '--sizes', '4KiB', '--engines', 'inline']
    expect(await rowsOf(['where', ...few])).toMatchObject([
      {
        size: '4 KiB',
        ranks: 2,
        engine: 'inline',
        firstUs: number,
        warmUs: number,
        spread: number,
      },
    ])
  })
})

it('launcher reports figures with their bounds', async () => {
  const rows = await rowsOf(['launcher', '--only', 'kill', '--runs', '1'])
  expect(rows).toMatchObject([
    { what: 'all gone after the kill of one of 4 ranks', bound: '1.00 s' },
  ])
})

it('memory reports the growth, and the memory per peer', async () => {
  const rows = await rowsOf(['memory', '--operations', '1000', '--peers', '2'])
  expect(rows).toMatchObject([
    { transport: 'shared-memory', growthMiB: number, peers: 2, peersMiB: number },
    { transport: 'tcp', growthMiB: number, peers: 2, peersMiB: number },
  ])
})

it('report writes a page and one picture per operation, and says what it omits', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-report-'))
  try {
    const what = [
      '--ops',
      'allReduce,sendRecv',
      '--sizes',
      // small buffers are measured thousands of times
      '8MiB,16MiB',
      '--engine',
      'worker',
      '--also',
      'kernels',
    ]
    const { code, stderr } = await bench(
      ['report', '--ranks', '2', '--runs', '1', '--output', folder, ...what],
      { TSRUN_BENCH_PYTHON: '', PATH: '/nonexistent' },
    )
    expect({ code, stderr }).toEqual({ code: 0, stderr })
    const page = readFileSync(join(folder, 'benchmarks.md'), 'utf8')
    expect(page).toMatch(new RegExp(`\\| Node\\.js +\\| ${process.version} `))
    expect(page).toMatch(/\| memory +\| [\d.]+ GiB/)
    expect(page).toContain('Not measured because it is not installed: torch.')
    expect(page).toContain('Not measured because it is not installed: openmpi.')
    expect(page).toMatch(/\| bytes +\| tsrun shared-memory worker \| tsrun tcp worker \|/)
    expect(page).toMatch(/\n\| 16 MiB \| +[\d.]+ \| +[\d.]+ \|\n/)
    expect(page).toMatch(/### Reduction kernels\n[^]*\| 64 MiB \| +[\d.]+ \|/)
    expect(stderr).toContain('skipped: the comparison with a C program')
    const pictures = readdirSync(join(folder, 'images')).sort()
    expect(pictures).toEqual([
      expect.stringMatching(/^bench-[a-z0-9-]+-all-reduce\.svg$/),
      expect.stringMatching(/^bench-[a-z0-9-]+-send-recv\.svg$/),
    ])
    for (const picture of pictures) expect(page).toContain(`(images/${picture})`)
  } finally {
    rmSync(folder, { recursive: true })
  }
})

it('collectives measures tsrun, skips missing peers and prints one JSON object per line', async () => {
  const what = ['--ops', 'allReduce,allToAll,sendRecv', '--sizes', '8MiB', '--runs', '1']
  const over = ['--transport', 'shared-memory,tcp']
  const { code, stdout, stderr } = await bench(
    ['collectives', '--json', '--ranks', '2', '--peers', 'torch,openmpi', ...what, ...over],
    { TSRUN_BENCH_PYTHON: '', PATH: '/nonexistent' },
  )
  expect(stderr).toContain('skipped: no torch (set TSRUN_BENCH_PYTHON)\n')
  expect(stderr).toContain('skipped: no Open MPI')
  expect(code).toBe(0)

  const rows = rowsIn(stdout)
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
    expect(row).toMatchObject({ bytes: 2 ** 23, ranks: 2, engine: 'worker' })
    expect(row['p50Us']).toBeGreaterThan(0)
    expect(row['p99Us']).toBeGreaterThanOrEqual(row['p50Us'] as number)
  }
})

it('collectives says what failed and how if the ranks fail', async () => {
  const env = { TSRUN_ARENA: 'nonsense' }
  const what = ['--ranks', '2', '--ops', 'allReduce', '--sizes', '4KiB', '--runs', '2']
  const { code, stderr } = await bench(['collectives', ...what], env)
  expect(code).toBe(1)
  expect(stderr).toMatch(/tsrun shared-memory worker failed \(exit code \d+\)\n[^]*TSRUN_ARENA/)
  expect(stderr).not.toContain('round 2')
})

it('tune writes a file that TSRUN_TUNING accepts', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-tune-'))
  try {
    const file = join(folder, 'tuning.json')
    const few = ['--ranks', '2', '--runs', '1', '--ops', 'allReduce,scatter']
    const what = [...few, '--sizes', '1MiB,256KiB', '--output', file]
    const { code, stdout } = await bench(['tune', ...what])
    expect(code).toBe(0)
    expect(stdout).toMatch(/\| allReduce +\| shared-memory \| 256 KiB +\|/)
    expect(stdout).toMatch(/\| scatter +\| tcp +\| 1 MiB +\|/)
    const { about } = JSON.parse(readFileSync(file, 'utf8')) as { about: object }
    expect(about).toMatchObject({ ranks: 2, engine: 'worker', node: process.version })
    const { sockets, sharedMemory } = readTuning(file).table
    expect(sockets.allReduce.at(-1)!.upTo).toBe(Infinity)
    expect(Object.keys(sharedMemory)).toEqual(expect.arrayContaining(['allReduce', 'scatter']))

    const small = ['--ranks', '2', '--runs', '1', '--sizes', '8MiB', '--ops', 'allReduce']
    const used = await bench(['collectives', ...small], { TSRUN_TUNING: file })
    expect(used.code).toBe(0)
  } finally {
    rmSync(folder, { recursive: true })
  }
})
