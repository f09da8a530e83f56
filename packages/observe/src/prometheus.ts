import { isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import { monotonicNow } from '@tsrun/core'
import { activityOf, rankStates, type RankStatus } from '@tsrun/distributed/record'
import type { AttemptFacts, ObserveHost } from './host.ts'
import { openHttpServer } from './http-server.ts'

const PATH = '/metrics'

/** Options of `openJobMetrics`. */
export interface MetricsOptions {
  /** Name or address to listen at. */
  readonly host: string
  /** The port to listen at; 0: any free port. */
  readonly port: number
  readonly script: string
}

/**
 * Serves Prometheus metrics of a job, read from its ranks on this host at each request, and announces
 * the address.
 *
 * @throws the system's error if it fails to listen
 */
export async function openJobMetrics({ host, port, script }: MetricsOptions, to: ObserveHost) {
  let attempt: Partial<AttemptFacts> = {}
  let readRanks: () => readonly RankStatus[] = () => []
  const { url, close } = await serveMetrics(host, port, () => {
    const { runId = '', restartCount = 0, worldSize } = attempt
    const ranks = readRanks()
      .map((status) => ({
        ...status,
        cpuSeconds: to.cpuSeconds(status.pid),
        residentBytes: to.residentBytes(status.pid),
      }))
      .sort((a, b) => a.rank - b.rank)
    const job = { runId, script, host: hostname(), worldSize, restartCount, ranks }
    return jobMetrics(job, monotonicNow())
  })
  to.say('metrics', `metrics: ${url}`, { url })
  return {
    /** Switches to this attempt. */
    follow(next: AttemptFacts, read: () => readonly RankStatus[]) {
      attempt = next
      readRanks = read
    },
    end: close,
  }
}

/**
 * Answers requests for `/metrics` with the text of `read`. Does no work between requests.
 *
 * @throws the system's error if the address or port cannot be used
 */
export async function serveMetrics(host: string, port: number, read: () => string) {
  const server = await openHttpServer(host, port, ({ request: { url = '' }, send }) => {
    if (url.split('?', 1)[0] === PATH) send(200, read(), { 'Content-Type': EXPOSITION_TYPE })
    else send(404, `The metrics are at ${PATH}.\n`)
  })
  const { address, port: own } = server.address
  return {
    url: `http://${isIPv6(address) ? `[${address}]` : address}:${own}${PATH}`,
    close: () => server.close(0),
  }
}

/** A job and its ranks on one host. */
export interface MeasuredJob {
  readonly runId: string
  readonly script: string
  readonly host: string
  /** Undefined before the first attempt. */
  readonly worldSize: number | undefined
  readonly restartCount: number
  readonly ranks: readonly MeasuredRank[]
}

/** A rank of this host with its process usage, which is undefined once the process has ended. */
export interface MeasuredRank extends RankStatus {
  readonly cpuSeconds: number | undefined
  readonly residentBytes: number | undefined
}

/** A metric of each rank: its name, its help text, and a function that reads its value, if any. */
type RankMetric = readonly [string, string, (rank: MeasuredRank) => number | undefined]

const rankMetrics: readonly RankMetric[] = [
  [
    'tsrun_rank_up',
    'Whether the process of the rank is running and has not left its group.',
    ({ state, end, cpuSeconds }) =>
      Number(cpuSeconds !== undefined && end === undefined && state !== 'left'),
  ],
  [
    'tsrun_rank_waits_for_ranks',
    'The number of ranks for whose messages the rank waits now.',
    (rank) => (activityOf(rank) === 'waiting' ? rank.waitsFor.length : 0),
  ],
  [
    'tsrun_rank_step',
    'The number of the last step that the rank has reported.',
    ({ step }) => step,
  ],
  ['tsrun_rank_loss', 'The last loss that the rank has reported.', ({ loss }) => loss],
  [
    'tsrun_rank_steps_total',
    'The steps that the rank has reported in this attempt.',
    ({ steps }) => steps,
  ],
  [
    'tsrun_rank_operations_total',
    'The operations of all groups of the rank that have ended.',
    ({ ended }) => ended,
  ],
  [
    'tsrun_rank_operations_running',
    'The operations that the engine of the rank is running.',
    ({ running }) => running,
  ],
  [
    'tsrun_rank_operation_seconds_total',
    'The time of the operations that have ended, from call to end, added up.',
    ({ operationTime }) => operationTime / 1000,
  ],
  [
    'tsrun_rank_wait_seconds_total',
    'The part of the time of operations before their first message moved: the peers were not there.',
    ({ waitTime }) => waitTime / 1000,
  ],
  [
    'tsrun_rank_operation_bytes_total',
    'The bytes of the buffers of the operations that have ended.',
    ({ operationBytes }) => operationBytes,
  ],
  [
    'tsrun_rank_sent_bytes_total',
    'The bytes of messages that the rank has sent to others.',
    ({ links }) => links.reduce((sum, { sent }) => sum + sent, 0),
  ],
  [
    'tsrun_rank_received_bytes_total',
    'The bytes of messages that the rank has received from others.',
    ({ links }) => links.reduce((sum, { received }) => sum + received, 0),
  ],
  [
    'tsrun_rank_cpu_seconds_total',
    'The CPU time of all threads of the process of the rank.',
    ({ cpuSeconds }) => cpuSeconds,
  ],
  [
    'tsrun_rank_resident_memory_bytes',
    'The resident memory of the process of the rank.',
    ({ residentBytes }) => residentBytes,
  ],
]

/** The value of a sample, and its labels. Without a value, the sample is omitted. */
type Sample = readonly [
  value: number | undefined,
  labels?: Readonly<Record<string, string | number>>,
]

/**
 * Returns the metrics of a job and of its ranks on one host as text. All have the labels `run_id` and
 * `host`.
 *
 * @param now - `monotonicNow()`
 */
export function jobMetrics(job: MeasuredJob, now: number): string {
  const { runId, host, script, worldSize, restartCount, ranks } = job
  const metric = (name: string, help: string, samples: readonly Sample[]) =>
    metricText(
      name,
      help,
      samples.map(([value, more]) => [value, { run_id: runId, host, ...more }]),
    )
  return [
    metric('tsrun_job_info', 'Always 1; its labels describe the job.', [[1, { script }]]),
    metric('tsrun_job_ranks', 'The number of ranks of the job, on all hosts.', [[worldSize]]),
    metric('tsrun_job_restarts_total', 'How often all ranks of the job were started again.', [
      [restartCount],
    ]),
    ...rankMetrics.map(([name, help, of]) =>
      metric(
        name,
        help,
        ranks.map((rank) => [of(rank), { rank: rank.rank }]),
      ),
    ),
    metric(
      'tsrun_rank_state',
      'Whether the rank is in this state: 1 for one of the states, and 0 for the others.',
      ranks.flatMap(({ rank, state: current }) =>
        rankStates.map((state): Sample => [Number(state === current), { rank, state }]),
      ),
    ),
    metric(
      'tsrun_rank_state_seconds',
      'For how long the rank has been in its state, or in the operation that it has begun last.',
      ranks.map(({ rank, since }) => [Math.max(0, now - since) / 1000, { rank }]),
    ),
  ].join('')
}

/*
 * The text exposition format of Prometheus, version 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/
 */

const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/**
 * Formats a metric; empty without samples.
 *
 * @param name - ends with the unit (seconds or bytes), then with `_total` for a counter
 */
export function metricText(name: string, help: string, samples: readonly Sample[]): string {
  const lines = samples.flatMap(([value, labels = {}]) =>
    value === undefined ? [] : `${name}${labelText(labels)} ${numberText(value)}\n`,
  )
  if (lines.length === 0) return ''
  const type = name.endsWith('_total') ? 'counter' : 'gauge'
  return `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n${lines.join('')}`
}

function labelText(labels: NonNullable<Sample[1]>) {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${escaped(String(value)).replaceAll('"', '\\"')}"`,
  )
  return `{${pairs.join(',')}}`
}

function escaped(text: string) {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

function numberText(value: number) {
  return value === Infinity ? '+Inf' : String(value).replace('Infinity', 'Inf')
}
