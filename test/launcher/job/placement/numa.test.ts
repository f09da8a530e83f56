import { coresOf, type ReadSystemFile } from '../../../internals/launcher/job.ts'

/** Two sockets with two NUMA nodes each, whose four cores share two last-level caches; core 0 is not usable. */
const usable = Array.from({ length: 15 }, (_, i) => i + 1)
const read = (path: string): string | undefined => {
  const core = Number(/cpu(\d+)\//.exec(path)?.[1])
  if (path.endsWith('node/online')) return '0-3'
  if (path.endsWith('cpulist')) {
    const node = Number(/node(\d+)\/cpulist/.exec(path)![1])
    return `${4 * node}-${4 * node + 1},${4 * node + 2},${4 * node + 3}`
  }
  if (path.endsWith('physical_package_id')) return String(Math.floor(core / 8))
  if (path.endsWith('shared_cpu_list')) return String(Math.floor(core / 2))
  return undefined
}

it.each([
  ['node', ['1,2,3', '1,2,3', '4,5,6,7', '4,5,6,7']],
  ['socket', ['1,2,3,4,5,6,7', '1,2,3,4,5,6,7', '1,2,3,4,5,6,7', '1,2,3,4,5,6,7']],
  ['exclusive', ['1', '2,3', '4,5', '6,7']],
  ['core-complex', ['1', '2,3', '4,5', '6,7']],
] as const)('--numa-binding %s spreads eight ranks over the host', (binding, first) => {
  const cores = (rank: number): string => coresOf(binding, rank, 8, read, usable).cores.join()
  expect([0, 1, 2, 3].map(cores)).toEqual(first)
  expect(cores(7)).toContain('15')
})

it('ranks share cores if there are more ranks than cores', () => {
  const shares = [0, 1, 2].map((rank) => coresOf('exclusive', rank, 3, () => undefined, [4, 5]))
  expect(shares).toEqual([
    { cores: [4], ranks: 2 },
    { cores: [5], ranks: 1 },
    { cores: [4], ranks: 2 },
  ])
})

it('counts the ranks that share the same cores', () => {
  const ranks = ['node', 'socket', 'core-complex'] as const
  expect(ranks.map((binding) => coresOf(binding, 0, 8, read, usable).ranks)).toEqual([2, 4, 1])
})

describe('core', () => {
  const coresOfAll = (count: number, given: ReadSystemFile, cores: readonly number[]): string[] =>
    Array.from({ length: count }, (_, rank) => {
      const { cores: own, ranks } = coresOf('core', rank, count, given, cores)
      expect(ranks).toBe(1)
      return own.join()
    })

  it('gives every rank separate cores, even if a NUMA node has fewer cores than ranks', () => {
    expect(coresOfAll(3, read, usable)).toEqual(['1,2,3,4,5', '6,7,8,9,10', '11,12,13,14,15'])
    expect(coresOfAll(3, read, [3, 4, 5])).toEqual(['3', '4', '5'])
    expect(coresOfAll(2, () => undefined, [0, 1, 2])).toEqual(['0', '1,2'])
  })

  it('keeps the hardware threads of a core together if there is a core for each rank', () => {
    const threads = (path: string): string | undefined => {
      const cpu = /cpu(\d+)\/topology\/thread_siblings_list/.exec(path)?.[1]
      return cpu === undefined ? undefined : `${Number(cpu) % 4},${(Number(cpu) % 4) + 4}`
    }
    const eight = [0, 1, 2, 3, 4, 5, 6, 7]
    expect(coresOfAll(2, threads, eight)).toEqual(['0,1,4,5', '2,3,6,7'])
    expect(coresOfAll(4, threads, eight)).toEqual(['0,4', '1,5', '2,6', '3,7'])
    expect(coresOfAll(8, threads, eight)).toEqual(['0', '1', '2', '3', '4', '5', '6', '7'])
  })

  it('refuses more ranks than cores', () => {
    expect(() => coresOf('core', 0, 3, read, [1, 2])).toThrow(
      '--bind core gives each of 3 ranks a core of its own, but tsrun may use 2 cores here: use at most --nproc 2, or --bind none',
    )
  })
})
