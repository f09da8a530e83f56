import { isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import { monotonicNow } from '@tsrun/core'
import { activityOf, rankStates, type RankStatus } from '@tsrun/distributed/record'
import type { AttemptFacts, ObserveHost } from './host.ts'
import { openHttpServer } from './http-server.ts'

const PATH = '/metrics'
const MOST_CONNECTIONS = 64

/** Options of `openJobMetrics`. */
export interface MetricsOptions {
  /** Name or address to listen at. */
  readonly host: string
  /** 0: any free port. */
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
    return expositionText(jobMetrics(job, monotonicNow()))
  })
  to.say('metrics', `metrics: ${url}`, { url })
  return {
    /** Switches to this attempt. */
    follow(next: AttemptFacts, read: () => readonly RankStatus[]): void {
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
  const server = await openHttpServer({
    host,
    port,
    limit: MOST_CONNECTIONS,
    headers: { 'Cache-Control': 'no-store' },
    // Pipelined requests would keep the launcher busy.
    requests: 1,
    // On a loopback address, reject other host names (DNS rebinding).
    isOwnName: (name, { address }) => !isLoopback(address) || isLoopbackName(name),
    answer: ({ request: { url = '' }, send }) => {
      if (url.split('?', 1)[0] === PATH) send(200, read(), { 'Content-Type': EXPOSITION_TYPE })
      else send(404, `The metrics are at ${PATH}.\n`)
    },
  })
  const { address, port: own } = server.address
  return {
    url: `http://${isIPv6(address) ? `[${address}]` : address}:${own}${PATH}`,
    close: () => server.close(0),
  }
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.')
}

function isLoopbackName(host: string): boolean {
  const name = host.replace(/:\d+$/, '')
  return name === 'localhost' || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name)
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

function family(name: string, help: string, samples: readonly Sample[]): MetricFamily {
  return { name, type: name.endsWith('_total') ? 'counter' : 'gauge', help, samples }
}

/**
 * Returns the metrics of a job and of its ranks on one host, each with the labels `run_id` and `host`.
 *
 * @param now - `monotonicNow()`
 */
export function jobMetrics(job: MeasuredJob, now: number): MetricFamily[] {
  const { runId, host, script, worldSize, restartCount, ranks } = job
  const labels = { run_id: runId, host }
  const ofJob = (value: number | undefined, more: Labels = {}): Sample[] =>
    value === undefined ? [] : [{ labels: { ...labels, ...more }, value }]
  return [
    family('tsrun_job_info', 'Always 1; its labels describe the job.', ofJob(1, { script })),
    family('tsrun_job_ranks', 'The number of ranks of the job, on all hosts.', ofJob(worldSize)),
    family(
      'tsrun_job_restarts_total',
      'How often all ranks of the job were started again.',
      ofJob(restartCount),
    ),
    ...rankMetrics.map(([name, help, of]) =>
      family(
        name,
        help,
        ranks.flatMap((rank) => ofJob(of(rank), { rank: rank.rank })),
      ),
    ),
    family(
      'tsrun_rank_state',
      'Whether the rank is in this state: 1 for one of the states, and 0 for the others.',
      ranks.flatMap(({ rank, state: current }) =>
        rankStates.flatMap((state) => ofJob(Number(state === current), { rank, state })),
      ),
    ),
    family(
      'tsrun_rank_state_seconds',
      'For how long the rank has been in its state, or in the operation that it has begun last.',
      ranks.flatMap(({ rank, since }) => ofJob(Math.max(0, now - since) / 1000, { rank })),
    ),
  ]
}

/*
 * The text exposition format of Prometheus, version 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/
 */

const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

export type Labels = Readonly<Record<string, string | number>>

export interface Sample {
  readonly labels: Labels
  readonly value: number
}

/** A metric with one sample for each set of labels. */
export interface MetricFamily {
  /** Ends with the unit (seconds or bytes), then with `_total` for a counter. */
  readonly name: string
  readonly type: 'counter' | 'gauge'
  readonly help: string
  readonly samples: readonly Sample[]
}

/** Formats metrics as text. Omits metrics without samples. */
export function expositionText(families: readonly MetricFamily[]): string {
  return families
    .filter(({ samples }) => samples.length > 0)
    .map(({ name, type, help, samples }) =>
      [
        `# HELP ${name} ${escaped(help)}\n`,
        `# TYPE ${name} ${type}\n`,
        ...samples.map(({ labels, value }) => `${name}${labelText(labels)} ${numberText(value)}\n`),
      ].join(''),
    )
    .join('')
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${escaped(String(value)).replaceAll('"', '\\"')}"`,
  )
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

function numberText(value: number): string {
  if (Number.isNaN(value)) return 'NaN'
  if (Number.isFinite(value)) return String(value)
  return value > 0 ? '+Inf' : '-Inf'
}
