import { readUsage, summaryText, type RankUsage } from '../../internals/launcher/report.ts'

it('usage from /proc equals the measurements of the process itself', () => {
  const seen = readUsage(process.pid)!
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage()
  expect(seen.peakBytes / (maxRSS * 1024)).toBeCloseTo(1, 1)
  expect(Math.abs(seen.cpuSeconds - (userCPUTime + systemCPUTime) / 1e6)).toBeLessThan(0.5)
})

it('usage of a missing process is undefined', () => {
  expect(readUsage(2 ** 22 + 1)).toBeUndefined()
})

describe('the summary', () => {
  const usage = (rank: number, node: number): RankUsage => ({
    ...{ rank, node, host: `h${node}`, seconds: 10, cpuSeconds: 10 * (node + 1) },
    peakBytes: 2 ** 20 * (rank + 1),
  })
  const ranks = (count: number, perNode: number): RankUsage[] =>
    Array.from({ length: count }, (_, rank) => usage(rank, Math.floor(rank / perNode)))

  it('of one host has no host names', () => {
    expect(summaryText(ranks(2, 2))).toBe(`rank    time  CPU time    CPU  peak memory
   0  10.0 s    10.0 s  100 %        1 MiB
   1  10.0 s    10.0 s  100 %        2 MiB
`)
  })

  it('of several hosts has one row for each rank', () => {
    expect(summaryText(ranks(4, 2))).toBe(`rank  host    time  CPU time    CPU  peak memory
   0    h0  10.0 s    10.0 s  100 %        1 MiB
   1    h0  10.0 s    10.0 s  100 %        2 MiB
   2    h1  10.0 s    20.0 s  200 %        3 MiB
   3    h1  10.0 s    20.0 s  200 %        4 MiB
`)
  })
})
