import { node } from '../launcher/support/nodes.ts'
import { tsrunHere } from '../launcher/support/in-process.ts'
import { killLeftovers, Run, until } from '../launcher/support/tsrun.ts'
import { cwd, scrape, untilScraped, urlOf } from './support/metrics.ts'

afterEach(killLeftovers)
describe('tsrun --metrics', () => {
  it('counts the operations of ranks while they run', async () => {
    const args = ['--nproc', '4', '--grace', '0.3', '--metrics', '0', 'progress.mjs']
    const run = new Run(args, { cwd })
    await run.announced(4)
    const url = urlOf(run)
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/metrics$/)
    const ranks = ['0', '1', '2', '3']
    // The ranks are read at different moments.
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
  const second = await tsrunHere(['--metrics', host, 'progress.mjs'], { cwd })
  expect(second).toMatchObject({ code: 2 })
  expect(second.stderr).toContain(`--metrics ${host}: listen EADDRINUSE`)
  const both = await tsrunHere(['--dashboard', '0', '--metrics', host, 'progress.mjs'], { cwd })
  expect(both).toMatchObject({ code: 2 })
  for (const wrong of ['x', '65536', '::1:9400', 'host:', 'http://x:1', '-1']) {
    const { code, stderr } = await tsrunHere([`--metrics=${wrong}`, 'progress.mjs'], { cwd })
    expect({ wrong, code }).toEqual({ wrong, code: 2 })
    expect(stderr).toContain(`--metrics is ${JSON.stringify(wrong)}; expected [HOST:]PORT`)
  }
  const elsewhere = await tsrunHere(['--metrics', `192.0.2.1:${port}`, 'progress.mjs'], { cwd })
  expect(elsewhere.stderr).toContain('listen EADDRNOTAVAIL')
  run.signal('SIGTERM')
  await run.finished
})
