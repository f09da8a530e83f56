import { coresOf } from '../../../packages/launcher/src/job/numa.ts'

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
] as const)('%s spreads eight ranks over the host', (binding, first) => {
  const cores = (rank: number): string => coresOf(binding, rank, 8, read, usable).join()
  expect([0, 1, 2, 3].map(cores)).toEqual(first)
  expect(cores(7)).toContain('15')
})

it('shares cores when there are more ranks than cores', () => {
  const cores = [0, 1, 2].map((rank) => coresOf('exclusive', rank, 3, () => undefined, [4, 5]))
  expect(cores).toEqual([[4], [5], [4]])
})
