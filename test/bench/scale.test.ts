import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { AlgorithmName, OperationName } from '@tsrun/distributed'
import type { Cluster, MachineCosts } from '../../scripts/bench/scale/simulation/cluster.ts'
import {
  algorithmFor,
  algorithmsOn,
  simulate,
  type Call,
} from '../../scripts/bench/scale/simulation/simulate.ts'
import { parseLink } from '../../scripts/bench/scale/links.mjs'
import { costsOf } from '../../scripts/bench/scale/machine.mjs'
import { benchHere } from './support/bench.ts'

const KIB = 1024
const MIB = 1024 * KIB
const us = 1e-6

const nothing = { overhead: 0, latency: 0, perByte: 0 }
const free: MachineCosts = {
  ...{ calling: 0, combinePerByte: 0, copyPerByte: 0, waking: 0 },
  ...{ sockets: nothing, sharedMemory: nothing, slots: { overhead: 0, latency: 0 } },
}
const usual: MachineCosts = {
  ...{ calling: 2 * us, combinePerByte: 8e-11, copyPerByte: 4e-11, waking: 3 * us },
  sockets: { overhead: 4 * us, latency: 5 * us, perByte: 3e-10 },
  sharedMemory: { overhead: us, latency: us, perByte: 1.5e-10 },
  slots: { overhead: us, latency: us },
}

function clusterOf(ranks: number, ranksPerHost: number, given: Partial<Cluster> = {}): Cluster {
  const link = { latency: 25 * us, bytesPerSecond: 1.2e9 }
  const within = 'sharedMemory'
  return { ranks, ranksPerHost, cores: ranksPerHost, within, link, costs: usual, ...given }
}

function secondsOf(cluster: Cluster, call: Call, algorithm: AlgorithmName, isWhole?: boolean) {
  return simulate(cluster, call, algorithm, isWhole)!.seconds
}

describe('a simulated collective costs what its formula says', () => {
  it('each rank sends 2(n-1)/n S bytes in a ring, and log2(n) S by recursive doubling', () => {
    const link = { latency: 0, bytesPerSecond: 1e9 }
    const cluster = clusterOf(8, 1, { link, costs: free })
    const call: Call = { name: 'allReduce', bytes: MIB }
    expect(secondsOf(cluster, call, 'ring')).toBeCloseTo(((14 / 8) * MIB) / 1e9, 9)
    expect(secondsOf(cluster, call, 'recursive-doubling')).toBeCloseTo((3 * MIB) / 1e9, 9)
  })

  it('recursive doubling takes log2(n) steps, and a ring 2(n-1)', () => {
    const link = { latency: 1, bytesPerSecond: Infinity }
    const cluster = clusterOf(16, 1, { link, costs: free })
    const call: Call = { name: 'allReduce', bytes: KIB }
    expect(secondsOf(cluster, call, 'recursive-doubling')).toBeCloseTo(4)
    expect(secondsOf(cluster, call, 'ring')).toBeCloseTo(30)
    expect(secondsOf(cluster, { name: 'broadcast', bytes: KIB }, 'binomial-tree')).toBeCloseTo(4)
  })

  it('a large message waits for the clear-to-send of its receiver', () => {
    const link = { latency: 1, bytesPerSecond: Infinity }
    const cluster = clusterOf(2, 1, { link, costs: free })
    expect(secondsOf(cluster, { name: 'broadcast', bytes: 16 * KIB }, 'direct')).toBeCloseTo(1)
    expect(secondsOf(cluster, { name: 'broadcast', bytes: 17 * KIB }, 'direct')).toBeCloseTo(2)
  })

  it('each rank adds (n-1)/n S bytes in a ring', () => {
    const link = { latency: 0, bytesPerSecond: Infinity }
    const costs = { ...free, combinePerByte: 1e-9 }
    const call: Call = { name: 'reduceScatter', bytes: MIB }
    expect(secondsOf(clusterOf(8, 1, { link, costs }), call, 'ring')).toBeCloseTo(
      (7 / 8) * MIB * 1e-9,
      9,
    )
  })

  it('the ranks of a host share its link, which all use in an all-to-all and one in a ring', () => {
    const link = { latency: 0, bytesPerSecond: 1e9 }
    const cluster = clusterOf(8, 4, { link, costs: free })
    const bytes = 2 * MIB
    const exchanged = secondsOf(cluster, { name: 'allToAll', bytes }, 'pairwise')
    expect(exchanged).toBeGreaterThanOrEqual((4 * (4 / 8) * bytes) / 1e9)
    const gathered = secondsOf(cluster, { name: 'allGather', bytes }, 'ring')
    expect(gathered).toBeCloseTo(((7 / 8) * bytes) / 1e9, 9)
  })

  it('ranks that share a core take turns', () => {
    const costs = { ...free, combinePerByte: 1e-9, slots: { overhead: 0, latency: us } }
    const call: Call = { name: 'allReduce', bytes: 8 * KIB }
    const times = [4, 2, 1].map((cores) =>
      secondsOf(clusterOf(4, 4, { cores, costs }), call, 'flat'),
    )
    const fold = 3 * 8 * KIB * 1e-9
    for (const [i, turns] of [1, 2, 4].entries()) expect(times[i]).toBeCloseTo(us + turns * fold, 9)
  })
})

describe('a simulation of only some ranks', () => {
  const symmetric: [OperationName, AlgorithmName][] = [
    ...(['ring', 'direct', 'recursive-doubling', 'halving-doubling', 'hierarchical'] as const).map(
      (algorithm): [OperationName, AlgorithmName] => ['allReduce', algorithm],
    ),
    ...(['ring', 'direct'] as const).map((algorithm): [OperationName, AlgorithmName] => [
      'reduceScatter',
      algorithm,
    ]),
    ['allGather', 'ring'],
    ['allGather', 'direct'],
    ['allToAll', 'pairwise'],
  ]

  it.each(symmetric)('one host represents all hosts: %s by %s', (name, algorithm) => {
    for (const bytes of [64 * KIB, MIB]) {
      const cluster = clusterOf(32, 4)
      const one = simulate(cluster, { name, bytes }, algorithm, false)!
      expect(one.method).toBe('one host')
      expect(one.seconds).toBeCloseTo(secondsOf(cluster, { name, bytes }, algorithm, true), 9)
    }
  })

  it('unequal chunks change the result by less than 2 %', () => {
    const call: Call = { name: 'allReduce', bytes: 1000 }
    const whole = secondsOf(clusterOf(24, 4), call, 'ring', true)
    const ratio = secondsOf(clusterOf(24, 4), call, 'ring', false) / whole
    expect(Math.abs(ratio - 1)).toBeLessThan(0.02)
  })

  it('gives up a simulation with too many messages', () => {
    const call: Call = { name: 'reduceScatter', bytes: 512 * MIB }
    expect(simulate(clusterOf(1024, 8), call, 'direct')).toBeUndefined()
  })
})

describe('the fastest algorithm', () => {
  const fastest = (cluster: Cluster, call: Call) => {
    const times = algorithmsOn(cluster, call).map((algorithm) => ({
      algorithm,
      seconds: secondsOf(cluster, call, algorithm),
    }))
    return times.reduce((a, b) => (b.seconds < a.seconds ? b : a)).algorithm
  }

  it('is hierarchical for a small all-reduce over a slow link between two hosts', () => {
    const link = { latency: 100 * us, bytesPerSecond: 1e8 }
    const call: Call = { name: 'allReduce', bytes: 64 * KIB }
    expect(fastest(clusterOf(8, 4, { link }), call)).toBe('hierarchical')
  })

  it('has few steps for small buffers and few bytes for large ones', () => {
    const cluster = clusterOf(64, 1)
    expect(fastest(cluster, { name: 'allReduce', bytes: KIB })).toBe('recursive-doubling')
    expect(fastest(cluster, { name: 'broadcast', bytes: 64 * MIB })).toBe('chain')
  })

  it('is compared with the choice of the tuning table', () => {
    const call: Call = { name: 'allReduce', bytes: 4 * KIB }
    expect(algorithmFor(clusterOf(8, 8), call)).toBe('flat')
    expect(algorithmFor(clusterOf(8, 8), { ...call, bytes: MIB })).toBe('window')
    expect(algorithmFor(clusterOf(16, 8), call)).toBe('hierarchical')
    expect(algorithmFor(clusterOf(16, 1), call)).toBe('recursive-doubling')
    expect(algorithmFor(clusterOf(8, 8, { within: 'sockets' }), call)).toBe('recursive-doubling')
  })

  it.each(['allReduce', 'reduceScatter', 'broadcast', 'reduce', 'gather', 'scatter'] as const)(
    'every algorithm of %s completes on every cluster',
    (name) => {
      for (const cluster of [clusterOf(8, 8), clusterOf(12, 4), clusterOf(6, 1)]) {
        const call: Call = { name, bytes: 96 * KIB }
        for (const algorithm of algorithmsOn(cluster, call)) {
          expect(secondsOf(cluster, call, algorithm)).toBeGreaterThan(0)
        }
      }
    },
  )
})

describe('the costs of a machine', () => {
  it('are derived from the times of messages, calls and barriers', () => {
    const times = { smallUs: 12, gapUs: 5, perByteUs: 1e-3, barrierUs: 8 }
    const kernels = { combinePerByte: 1e-10, copyPerByte: 5e-11 }
    const measured = { shared: times, sockets: times, callUs: 2, waking: -1, ...kernels }
    expect(costsOf(measured)).toEqual({
      ...{ ...kernels, calling: 2 * us, waking: 0 },
      sockets: { overhead: 3 * us, latency: 4 * us, perByte: 1e-9 },
      sharedMemory: { overhead: 3 * us, latency: 4 * us, perByte: 1e-9 },
      slots: { overhead: 3 * us, latency: 3 * us },
    })
  })

  it('links have names, or a latency and a bandwidth', () => {
    expect(parseLink('10GbE').bytesPerSecond).toBeCloseTo(1.177e9, -6)
    expect(parseLink('25us,1.2GB/s')).toEqual({ latency: 25e-6, bytesPerSecond: 1.2e9 })
    expect(parseLink('0.5ms,80MB/s')).toEqual({ latency: 5e-4, bytesPerSecond: 8e7 })
  })
})

describe('the command', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-scale-'))
  const machine = join(folder, 'machine.json')
  writeFileSync(machine, JSON.stringify({ costs: usual }))
  afterAll(() => {
    rmSync(folder, { recursive: true })
  })

  it('prints one JSON object for each operation, size and number of ranks', async () => {
    const what = ['--op', 'allReduce,allGather', '--size', '4KiB,1MiB', '--ranks', '8,64']
    const { code, stdout } = await benchHere(['scale', '--machine', machine, ...what, '--json'])
    expect(code).toBe(0)
    const rows = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(rows.map(({ op, bytes, ranks }) => [op, bytes, ranks])).toEqual([
      ...[4096, MIB].map((bytes) => ['allReduce', bytes, 8]),
      ...[4096, MIB].map((bytes) => ['allReduce', bytes, 64]),
      ...[4096, MIB].map((bytes) => ['allGather', bytes, 8]),
      ...[4096, MIB].map((bytes) => ['allGather', bytes, 64]),
    ])
    for (const { loss, chosen, algorithms } of rows) {
      expect(loss).toBeGreaterThanOrEqual(1)
      const names = (algorithms as { algorithm: string }[]).map(({ algorithm }) => algorithm)
      expect(names).toContain(chosen)
    }
  })

  it('prints a table, and the costs with --measure', async () => {
    const what = ['--op', 'broadcast', '--size', '64KiB', '--ranks', '64', '--link', '25us,1.2GB/s']
    const { stdout } = await benchHere(['scale', '--machine', machine, ...what])
    expect(stdout).toMatch(/\| broadcast \| 64 KiB \| +64 \| binomial-tree \|/)
    const measured = await benchHere(['scale', '--machine', machine, '--measure', '--json'])
    expect(JSON.parse(measured.stdout)).toMatchObject({ costs: usual })
  })

  it.each([
    ['--link', 'fast', '--link: "fast" is no link; write 1GbE, 10GbE, 25GbE, 100GbE or'],
    ['--ranks', '12', '--ranks: 12 is no multiple of the 8 of --per-host'],
    ['--ranks', '10000', '--ranks must be an integer from 2 to 4096'],
    ['--op', 'allreduce', '--op: unknown "allreduce"; did you mean allReduce?'],
    ['--size', '4GiB', '--size: at most 1024MiB'],
    ['--check', '64', '--check must be an integer from 2 to 16'],
    ['--machine', '/nonexistent', '--machine: /nonexistent cannot be read'],
  ])('refuses %s %s', async (option, value, message) => {
    const { code, stderr } = await benchHere(['scale', '--machine', machine, option, value])
    expect(stderr).toContain(message)
    expect(code).toBe(2)
  })
})
