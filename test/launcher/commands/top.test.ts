import { monotonicNow } from '@tsrun/core'
import type { RankStatus, StatusSnapshot } from '@tsrun/distributed/record'
import { topText } from '../../internals/launcher/commands.ts'

function rank(number: number, facts: Partial<RankStatus>): RankStatus {
  return {
    ...{ rank: number, pid: 4_000_000 + number, state: 'operation', since: monotonicNow() - 2000 },
    ...{ operation: 'allReduce(avg) float32[1048576] bucket 3', group: 'world', sequence: 17 },
    ...{ bytes: 4096, running: 1, ended: 16, waitsFor: [2], step: 120, loss: 0.25 },
    ...{
      end: undefined,
      ownTime: 0,
      steps: 120,
      operationTime: 0,
      operationBytes: 0,
      waitTime: 0,
      links: [],
    },
    ...facts,
  }
}

const job: StatusSnapshot = {
  ...{ runId: '20261123-120000-abcdef', script: '/train.ts', launcherPid: 7, worldSize: 3 },
  ...{ restartCount: 0, abortedBy: undefined, slots: 3, socket: '' },
  ranks: [rank(0, {}), rank(1, {}), rank(2, { state: 'running', waitsFor: [], step: undefined })],
}
const samples = (at: number, step: number, cpuSeconds: number) =>
  new Map(
    job.ranks.map(({ pid }) => {
      const use = { at, step, cpuSeconds, ownTime: at, delay: 0, hasGpu: false, gpu: undefined }
      return [pid, use] as const
    }),
  )

it('tsrun top shows rates since the previous sample', () => {
  const text = topText([job], samples(1000, 100, 5), samples(3000, 120, 6.5), 160)
  const [title, titles, first, , third] = text.split('\n')
  expect(title).toContain('20261123-120000-abcdef  /train.ts (tsrun 7, 3 of 3 ranks here)')
  expect(titles).toMatch(/^rank +state +for +step +loss +steps\/s +CPU +memory +waits +operation/)
  expect(first).toMatch(
    /^0 +waiting +[\d.]+ s +120 +0\.2500 +10\.0 +75 % +– +2 +allReduce.*#17 of world$/,
  )
  expect(third).toMatch(/^2 +computing .*– +allReduce/)
})

it('tsrun top marks a dead rank, and calls a rank computing only after measuring its CPU time', () => {
  const ranks = [rank(0, { state: 'running' }), rank(1, { end: 'died' })]
  const text = topText([{ ...job, ranks }], new Map(), samples(3000, 120, 6.5), 160)
  const [, , first, second] = text.split('\n')
  expect(first).toMatch(/^0 +running +2\./)
  expect(second).toMatch(/^1 +died +– .* – +allReduce/)
})

it('tsrun top wraps a title that is wider than the terminal', () => {
  const lines = topText([job], samples(1000, 100, 5), samples(3000, 120, 6.5), 50).split('\n')
  expect(lines.slice(0, 2)).toEqual([
    '20261123-120000-abcdef  /train.ts',
    '  (tsrun 7, 3 of 3 ranks here)',
  ])
})

it.each([60, 80, 120])('tsrun top fits into %i columns and cuts operations', (width) => {
  const lines = topText([job], samples(1000, 100, 5), samples(3000, 120, 6.5), width).split('\n')
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(width)
  expect(lines.at(-3)).toMatch(/ allReduce\(a/)
})

describe('on GPUs', () => {
  const gpus = [0, 1].map((index) => ({
    ...{ index: String(index), uuid: `GPU-${index}` },
    ...{ busy: 97 - index, memory: 61_234 * 2 ** 20 },
  }))
  const now = new Map(
    [...samples(3000, 120, 6.5)].map(([pid, sample], i) => [pid, { ...sample, gpu: gpus[i] }]),
  )
  const lines = (width: number): string[] =>
    topText([job], samples(1000, 100, 5), now, width).split('\n')

  it('shows how busy the GPU of a rank is, and the memory in use there', () => {
    const [, titles, first, second, third] = lines(200)
    expect(titles).toMatch(/ CPU +memory +GPU +GPU memory +waits +operation$/)
    expect(first).toMatch(/ 75 % +– +97 % +60 GiB +2 +allReduce/)
    expect(second).toMatch(/ 96 % +60 GiB +2 /)
    expect(third).toMatch(/ 75 % +– +– +– +– +allReduce/)
  })

  it('fits into 80 columns, and omits columns in a narrower terminal', () => {
    for (const width of [50, 60, 70, 80, 90, 100]) {
      for (const line of lines(width)) expect(line.length).toBeLessThanOrEqual(width)
    }
    expect(lines(80)[1]).toMatch(/^rank +state +step +loss +steps\/s +CPU +GPU +GPU memory +oper/)
    expect(lines(80)[2]).toMatch(/ allReduce\(avg\)/)
    expect(lines(70)[1]).toMatch(/ CPU +GPU +operation$/)
    expect(lines(60).at(-4)).toMatch(/ CPU +operation$/)
  })
})

it('tsrun top says that no job is running', () => {
  expect(topText([], new Map(), new Map(), 80)).toBe('no job of yours runs on this host')
})
