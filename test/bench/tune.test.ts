import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { bestBySize, thresholdsOf, tuningTable } from '../../scripts/bench/tune/tuning-table.mjs'
import { readTuning } from '../../packages/distributed/src/algorithms/tuning-file.ts'
import { bench } from './support/bench.ts'

jest.setTimeout(120_000)

const timing = (bytes: number, algorithm: string, us: number, transport = 'tcp') => ({
  ...{ op: 'allReduce', transport, bytes, algorithm, us },
})

describe('the best algorithm', () => {
  it('is the fastest of each size, beside the others as multiples of it', () => {
    const bests = bestBySize([
      timing(64, 'ring', 30),
      timing(64, 'recursive-doubling', 10),
      timing(256, 'ring', 10),
      timing(256, 'recursive-doubling', 20),
    ])
    expect(bests).toMatchObject([
      { bytes: 64, algorithm: 'recursive-doubling', others: [{ algorithm: 'ring', ratio: 3 }] },
      { bytes: 256, algorithm: 'ring', others: [{ algorithm: 'recursive-doubling', ratio: 2 }] },
    ])
  })

  it('stays that of the size before, unless another is clearly faster', () => {
    const bests = bestBySize([
      timing(64, 'ring', 90),
      timing(64, 'direct', 100),
      timing(256, 'ring', 100),
      timing(256, 'direct', 97),
      timing(1024, 'ring', 100),
      timing(1024, 'direct', 90),
    ])
    expect(bests.map(({ algorithm }) => algorithm)).toEqual(['ring', 'ring', 'direct'])
  })
})

describe('thresholds', () => {
  it('lie half-way between two sizes with different winners, the last without a limit', () => {
    const at = (bytes: number, algorithm: string) => ({ bytes, algorithm })
    const bests = [at(1024, 'bruck'), at(4096, 'bruck'), at(16384, 'ring'), at(65536, 'ring')]
    expect(thresholdsOf(bests)).toEqual([{ upTo: 8192, algorithm: 'bruck' }, { algorithm: 'ring' }])
    expect(thresholdsOf([at(1024, 'ring')])).toEqual([{ algorithm: 'ring' }])
  })

  it('are kept apart for sockets and shared memory', () => {
    const timings = [timing(64, 'ring', 1), timing(64, 'direct', 1, 'shared-memory')]
    expect(tuningTable(bestBySize(timings), {})).toEqual({
      version: 1,
      about: {},
      sockets: { allReduce: [{ algorithm: 'ring' }] },
      sharedMemory: { allReduce: [{ algorithm: 'direct' }] },
    })
  })
})

it('writes a file that TSRUN_TUNING takes', async () => {
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

    const small = ['--ranks', '2', '--runs', '1', '--sizes', '4KiB', '--ops', 'allReduce']
    const used = await bench(['collectives', ...small], { TSRUN_TUNING: file })
    expect(used.code).toBe(0)
  } finally {
    rmSync(folder, { recursive: true })
  }
})

it.each([
  [['--ops', 'barrier'], '--ops: unknown "barrier"'],
  [['--engine', 'worker,inline'], '--engine takes one name'],
  [['--sizes', '1GiB'], '--sizes: at most 64MiB'],
  [['--sizes', ''], '--sizes needs a value'],
])('refuses %j', async (args, message) => {
  const { code, stderr } = await bench(['tune', ...args])
  expect({ code, stderr }).toEqual({ code: 2, stderr })
  expect(stderr).toContain(message)
})
