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

/** A metric of each rank. A rank without a value has no sample. */
interface RankMetric {
  readonly name: string
  readonly type: MetricFamily['type']
  readonly help: string
  readonly of: (rank: MeasuredRank) => number | undefined
}

const rankMetrics: readonly RankMetric[] = [
  {
    name: 'tsrun_rank_up',
    type: 'gauge',
    help: 'Whether the process of the rank is running and has not left its group.',
    of: ({ state, end, cpuSeconds }) =>
      Number(cpuSeconds !== undefined && end === undefined && state !== 'left'),
  },
  {
    name: 'tsrun_rank_waits_for_ranks',
    type: 'gauge',
    help: 'The number of ranks for whose messages the rank waits now.',
    of: (rank) => (activityOf(rank) === 'waiting' ? rank.waitsFor.length : 0),
  },
  {
    name: 'tsrun_rank_step',
    type: 'gauge',
    help: 'The number of the last step that the rank has reported.',
    of: ({ step }) => step,
  },
  {
    name: 'tsrun_rank_loss',
    type: 'gauge',
    help: 'The last loss that the rank has reported.',
    of: ({ loss }) => loss,
  },
  {
    name: 'tsrun_rank_steps_total',
    type: 'counter',
    help: 'The steps that the rank has reported in this attempt.',
    of: ({ steps }) => steps,
  },
  {
    name: 'tsrun_rank_operations_total',
    type: 'counter',
    help: 'The operations of all groups of the rank that have ended.',
    of: ({ ended }) => ended,
  },
  {
    name: 'tsrun_rank_operations_running',
    type: 'gauge',
    help: 'The operations that the engine of the rank is running.',
    of: ({ running }) => running,
  },
  {
    name: 'tsrun_rank_operation_seconds_total',
    type: 'counter',
    help: 'The time of the operations that have ended, from call to end, added up.',
    of: ({ operationTime }) => operationTime / 1000,
  },
  {
    name: 'tsrun_rank_wait_seconds_total',
    type: 'counter',
    help: 'The part of the time of operations before their first message moved: the peers were not there.',
    of: ({ waitTime }) => waitTime / 1000,
  },
  {
    name: 'tsrun_rank_operation_bytes_total',
    type: 'counter',
    help: 'The bytes of the buffers of the operations that have ended.',
    of: ({ operationBytes }) => operationBytes,
  },
  {
    name: 'tsrun_rank_sent_bytes_total',
    type: 'counter',
    help: 'The bytes of messages that the rank has sent to others.',
    of: ({ links }) => links.reduce((sum, { sent }) => sum + sent, 0),
  },
  {
    name: 'tsrun_rank_received_bytes_total',
    type: 'counter',
    help: 'The bytes of messages that the rank has received from others.',
    of: ({ links }) => links.reduce((sum, { received }) => sum + received, 0),
  },
  {
    name: 'tsrun_rank_cpu_seconds_total',
    type: 'counter',
    help: 'The CPU time of all threads of the process of the rank.',
    of: ({ cpuSeconds }) => cpuSeconds,
  },
  {
    name: 'tsrun_rank_resident_memory_bytes',
    type: 'gauge',
    help: 'The resident memory of the process of the rank.',
    of: ({ residentBytes }) => residentBytes,
  },
]

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
    {
      name: 'tsrun_job_info',
      type: 'gauge',
      help: 'Always 1; its labels describe the job.',
      samples: ofJob(1, { script }),
    },
    {
      name: 'tsrun_job_ranks',
      type: 'gauge',
      help: 'The number of ranks of the job, on all hosts.',
      samples: ofJob(worldSize),
    },
    {
      name: 'tsrun_job_restarts_total',
      type: 'counter',
      help: 'How often all ranks of the job were started again.',
      samples: ofJob(restartCount),
    },
    ...rankMetrics.map(({ of, ...metric }) => ({
      ...metric,
      samples: ranks.flatMap((rank): Sample[] => {
        const value = of(rank)
        return value === undefined ? [] : [{ labels: { ...labels, rank: rank.rank }, value }]
      }),
    })),
    {
      name: 'tsrun_rank_state',
      type: 'gauge',
      help: 'Whether the rank is in this state: 1 for one of the states, and 0 for the others.',
      samples: ranks.flatMap(({ rank, state: current }) =>
        rankStates.map((state) => ({
          labels: { ...labels, rank, state },
          value: Number(state === current),
        })),
      ),
    },
    {
      name: 'tsrun_rank_state_seconds',
      type: 'gauge',
      help: 'For how long the rank has been in its state, or in the operation that it has begun last.',
      samples: ranks.map(({ rank, since }) => ({
        labels: { ...labels, rank },
        value: Math.max(0, now - since) / 1000,
      })),
    },
  ]
}
