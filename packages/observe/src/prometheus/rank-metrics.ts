import { activityOf, rankStates, type RankStatus } from '@tsrun/distributed/record'
import type { Labels, MetricFamily, Sample } from './exposition.ts'

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
