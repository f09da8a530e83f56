import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { node } from '../launcher/support/nodes.ts'
import { killLeftovers, Run, tsrun, until } from '../launcher/support/tsrun.ts'
import { parseExposition } from '../observe/support/exposition.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)
const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))

function urlOf({ stderr }: Pick<Run, 'stderr'>): string {
  return /^tsrun: metrics: (http:\S+)$/m.exec(stderr)![1]!
}

/** The values of a metric by the label `rank`; that of the job under `job`. */
type Values = (name: string) => Record<string, number>

async function scrape(url: string): Promise<Values> {
  const answer = await fetch(url)
  expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  const families = parseExposition(await answer.text())
  return (name) =>
    Object.fromEntries(
      (families.get(name)?.samples ?? []).map(
        ({ labels, value }) => [labels['rank'] ?? 'job', value] as const,
      ),
    )
}

/** Scrapes until this holds. */
async function untilScraped(url: string, holds: (values: Values) => boolean): Promise<Values> {
  const deadline = performance.now() + 20_000
  for (;;) {
    const values = await scrape(url)
    if (holds(values)) return values
    if (performance.now() > deadline) throw new Error('still not scraped')
  }
}

describe.each([
  { name: 'worker engine', env: {} },
  { name: 'without koffi', env: { TSRUN_NATIVE: 'off' } },
])('tsrun --metrics ($name)', ({ env }) => {
  it('counts the operations of ranks while they run', async () => {
    const args = ['--nproc', '4', '--grace', '0.3', '--metrics', '0', 'progress.mjs']
    const run = new Run(args, { cwd, env })
    await run.announced(4)
    const url = urlOf(run)
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/metrics$/)
    const ranks = ['0', '1', '2', '3']
    // The files of the ranks are read at different moments.
    const first = await untilScraped(url, (values) =>
      ranks.every((rank) => values('tsrun_rank_step')[rank]! > 5),
    )
    const names = [
      'tsrun_rank_steps_total',
      'tsrun_rank_operations_total',
      'tsrun_rank_operation_seconds_total',
      'tsrun_rank_operation_bytes_total',
      'tsrun_rank_cpu_seconds_total',
    ]
    // All of them rise.
    await untilScraped(url, (values) =>
      names.every((name) => ranks.every((rank) => values(name)[rank]! > first(name)[rank]!)),
    )
    expect(first('tsrun_rank_up')).toEqual({ 0: 1, 1: 1, 2: 1, 3: 1 })
    expect(first('tsrun_job_ranks')).toEqual({ job: 4 })
    for (const rank of ranks) {
      expect(first('tsrun_rank_resident_memory_bytes')[rank]).toBeGreaterThan(2 ** 20)
      expect(first('tsrun_rank_loss')[rank]).toBeGreaterThan(0)
      expect(first('tsrun_rank_wait_seconds_total')[rank]).toBeLessThanOrEqual(
        first('tsrun_rank_operation_seconds_total')[rank]!,
      )
    }
    run.signal('SIGTERM')
    expect(await run.finished).toMatchObject({ code: 143 })
    await expect(fetch(url)).rejects.toThrow()
  })
})

it('metrics count restarts, and counters of ranks restart from zero', async () => {
  const flags = ['--nproc', '2', '--max-restarts', '1', '--grace', '0.3', '--metrics', '0']
  const run = new Run([...flags, 'progress.mjs'], { cwd })
  const ranks = await run.announced(2)
  const url = urlOf(run)
  expect((await scrape(url))('tsrun_job_restarts_total')).toEqual({ job: 0 })
  run.ask(ranks, (rank) => rank === 1)
  const values = await untilScraped(
    url,
    (now) => now('tsrun_job_restarts_total')['job'] === 1 && now('tsrun_rank_up')['1'] === 1,
  )
  expect(values('tsrun_rank_up')).toMatchObject({ 1: 1 })
  run.signal('SIGTERM')
  await run.finished
})

it('metrics show a rank as down if its process has ended', async () => {
  const run = new Run(['--nproc', '2', '--grace', '20', '--metrics', '0', 'asleep.mjs'], { cwd })
  const ranks = await run.announced(2)
  const url = urlOf(run)
  const kill = (rank: number): boolean =>
    process.kill(ranks.find((line) => line.rank === rank)!.pid, 'SIGKILL')
  kill(1)
  const values = await untilScraped(url, (now) => now('tsrun_rank_up')['1'] === 0)
  expect(values('tsrun_rank_up')).toEqual({ 0: 1, 1: 0 })
  kill(0)
  await run.finished
})

it('metrics have only the ranks of the same host', async () => {
  const runs = [0, 1].map((index) => {
    const path = `${cwd}progress.mjs`
    const args = ['--nproc', '2', '--grace', '0.3', '--metrics', '0', path]
    // Collectives over shared memory need no messages.
    return node(index, 2, args, { env: { TSRUN_TRANSPORT: 'tcp' } })
  })
  for (const run of runs) await run.announced(2)
  const ranks = [
    ['0', '1'],
    ['2', '3'],
  ]
  for (const [index, run] of runs.entries()) {
    const url = urlOf(run)
    const values = await untilScraped(
      url,
      (now) =>
        Object.keys(now('tsrun_rank_up')).length === 2 &&
        now('tsrun_rank_step')[ranks[index]![0]!]! > 2,
    )
    expect(Object.keys(values('tsrun_rank_up'))).toEqual(ranks[index])
    expect(values('tsrun_job_ranks')).toEqual({ job: 4 })
    for (const rank of ranks[index]!) {
      expect(values('tsrun_rank_sent_bytes_total')[rank]).toBeGreaterThan(0)
    }
  }
  runs[0]!.signal('SIGTERM')
  for (const run of runs) await run.finished
})

it('--metrics refuses ports in use and invalid ports', async () => {
  const args = ['--grace', '0.3', '--metrics', 'localhost:0', 'progress.mjs']
  const run = new Run(args, { cwd })
  await until(() => run.stderr.includes('metrics: '), 'the address')
  const { host, port } = new URL(urlOf(run))
  const second = await tsrun(['--metrics', host, 'progress.mjs'], { cwd })
  expect(second).toMatchObject({ code: 2 })
  expect(second.stderr).toContain(`--metrics ${host}: listen EADDRINUSE`)
  const both = await tsrun(['--dashboard', '0', '--metrics', host, 'progress.mjs'], { cwd })
  expect(both).toMatchObject({ code: 2 })
  for (const wrong of ['x', '65536', '::1:9400', 'host:', 'http://x:1', '-1']) {
    const { code, stderr } = await tsrun([`--metrics=${wrong}`, 'progress.mjs'], { cwd })
    expect({ wrong, code }).toEqual({ wrong, code: 2 })
    expect(stderr).toContain(`--metrics is ${JSON.stringify(wrong)}; expected [HOST:]PORT`)
  }
  const elsewhere = await tsrun(['--metrics', `192.0.2.1:${port}`, 'progress.mjs'], { cwd })
  expect(elsewhere.stderr).toContain('listen EADDRNOTAVAIL')
  run.signal('SIGTERM')
  await run.finished
})
