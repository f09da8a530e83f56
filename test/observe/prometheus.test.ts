import { request } from 'node:http'
import { jobMetrics, metricText, serveMetrics, type MeasuredRank } from '../internals/observe.ts'
import { parseExposition } from './support/exposition.ts'

const rank: MeasuredRank = {
  ...{ rank: 3, pid: 77, state: 'operation', since: 1000, waitsFor: [0, 2], bytes: 32 },
  ...{ operation: 'allReduce(sum) float32[8]', group: 'world', sequence: 7, running: 1, ended: 6 },
  ...{
    end: undefined,
    ownTime: 0,
    step: 12,
    loss: 0.25,
    steps: 2,
    operationTime: 1500,
    waitTime: 250,
    operationBytes: 192,
  },
  links: [
    { sent: 100, received: 10 },
    { sent: 1e15, received: 20 },
  ],
  ...{ cpuSeconds: 1.5, residentBytes: 2 ** 20 },
}
const job = {
  ...{ runId: 'run-1', script: '/a "b"\\c\n.ts', host: 'node0', worldSize: 4, restartCount: 1 },
  ranks: [rank, { ...rank, rank: 4, loss: undefined, cpuSeconds: undefined }],
}

/** The value of each family's sample with these labels. */
function valuesOf(text: string, wanted: Record<string, string>): Record<string, number> {
  return Object.fromEntries(
    [...parseExposition(text)].flatMap(([name, { samples }]) =>
      samples
        .filter(({ labels }) =>
          Object.entries(wanted).every(([key, value]) => labels[key] === value),
        )
        .map(({ labels, value }) => [
          labels['state'] === undefined ? name : `${name} ${labels['state']}`,
          value,
        ]),
    ),
  )
}

it('metrics describe a job and its ranks in base units', () => {
  const text = jobMetrics(job, 3500)
  expect(valuesOf(text, { run_id: 'run-1', host: 'node0', rank: '3' })).toEqual({
    tsrun_rank_up: 1,
    tsrun_rank_waits_for_ranks: 2,
    tsrun_rank_step: 12,
    tsrun_rank_loss: 0.25,
    tsrun_rank_steps_total: 2,
    tsrun_rank_operations_total: 6,
    tsrun_rank_operations_running: 1,
    tsrun_rank_operation_seconds_total: 1.5,
    tsrun_rank_wait_seconds_total: 0.25,
    tsrun_rank_operation_bytes_total: 192,
    tsrun_rank_sent_bytes_total: 1e15 + 100,
    tsrun_rank_received_bytes_total: 30,
    tsrun_rank_cpu_seconds_total: 1.5,
    tsrun_rank_resident_memory_bytes: 2 ** 20,
    'tsrun_rank_state starting': 0,
    'tsrun_rank_state running': 0,
    'tsrun_rank_state operation': 1,
    'tsrun_rank_state left': 0,
    tsrun_rank_state_seconds: 2.5,
  })
  const other = valuesOf(text, { rank: '4' })
  expect(other).toMatchObject({ tsrun_rank_up: 0 })
  expect(Object.keys(other)).not.toContain('tsrun_rank_loss')
  expect(Object.keys(other)).not.toContain('tsrun_rank_cpu_seconds_total')
  expect(parseExposition(text).get('tsrun_job_info')!.samples).toEqual([
    { labels: { run_id: 'run-1', host: 'node0', script: job.script }, value: 1 },
  ])
  expect(valuesOf(text, { run_id: 'run-1' })).toMatchObject({
    tsrun_job_ranks: 4,
    tsrun_job_restarts_total: 1,
  })
})

it('metrics may be NaN or infinite, and metrics without samples are omitted', () => {
  const metric = (name: string, ...values: number[]) =>
    metricText(
      name,
      'A line\nand \\ another.',
      values.map((value, k) => [value, { k }]),
    )
  const text = metric('a', NaN, Infinity, -Infinity, 1e-7, 1e21)
  expect(metric('b')).toBe('')
  expect(text).toBe(
    '# HELP a A line\\nand \\\\ another.\n# TYPE a gauge\n' +
      'a{k="0"} NaN\na{k="1"} +Inf\na{k="2"} -Inf\na{k="3"} 1e-7\na{k="4"} 1e+21\n',
  )
  const values = parseExposition(text)
    .get('a')!
    .samples.map(({ value }) => value)
  expect(values).toEqual([NaN, Infinity, -Infinity, 1e-7, 1e21])
})

describe('the server', () => {
  let server: Awaited<ReturnType<typeof serveMetrics>>
  let reads = 0
  beforeAll(async () => {
    const read = (): string => `# HELP a b\n# TYPE a gauge\na ${++reads}\n`
    server = await serveMetrics('127.0.0.1', 0, read)
  })
  afterAll(async () => {
    await server.close()
  })

  interface Answer {
    readonly status: number | undefined
    readonly type: string | undefined
    readonly text: string
  }

  async function ask(path: string, method = 'GET', host?: string): Promise<Answer> {
    return await new Promise((resolve, reject) => {
      const url = new URL(path, server.url)
      const headers = host === undefined ? {} : { host }
      request(url, { method, headers, agent: false }, (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (part: string) => (text += part))
        response.on('end', () => {
          const { statusCode: status, headers: got } = response
          resolve({ status, type: got['content-type'], text })
        })
      })
        .on('error', reject)
        .end()
    })
  }

  it('answers with the current metrics', async () => {
    const type = 'text/plain; version=0.0.4; charset=utf-8'
    expect(await ask('/metrics')).toEqual({
      status: 200,
      type,
      text: expect.stringMatching(/a 1\n$/),
    })
    expect(await ask('/metrics?x=1')).toMatchObject({ text: expect.stringMatching(/a 2\n$/) })
    expect(await ask('/metrics', 'HEAD')).toEqual({ status: 200, type, text: '' })
  })

  it('refuses other paths and methods', async () => {
    expect(await ask('/')).toMatchObject({ status: 404, text: 'The metrics are at /metrics.\n' })
    expect(await ask('/metrics', 'POST')).toMatchObject({ status: 405 })
    const rebound = await ask('/metrics', 'GET', `rebound.example:${new URL(server.url).port}`)
    expect(rebound).toMatchObject({ status: 421 })
  })
})
