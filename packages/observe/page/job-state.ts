import { useEffect, useState } from 'preact/hooks'
import type { RankActivity } from '@tsrun/distributed/record'
import type { DashboardUpdate, LogLine, RankView } from '../src/dashboard/views.ts'

const KEPT_LINES = 2000
const KEPT_POINTS = 3600
export const ACTIVITY_SECONDS = 30

/** The fraction (0 to 1) of the time between two samples that a rank spent in each activity. */
export type ActivityParts = Partial<Record<RankActivity, number>>

export interface ActivitySample {
  readonly at: number
  readonly ranks: ReadonlyMap<number, ActivityParts>
}

export interface NumberedLine extends LogLine {
  readonly number: number
}

export interface JobState extends Omit<DashboardUpdate, 'lines'> {
  readonly lines: readonly NumberedLine[]
  readonly samples: readonly ActivitySample[]
}

export type Connection = 'connecting' | 'live' | 'lost'

/** Follows the server-sent events. */
export function useJobState(): readonly [state: JobState | undefined, connection: Connection] {
  const [state, setState] = useState<JobState>()
  const [connection, setConnection] = useState<Connection>('connecting')
  useEffect(() => {
    const source = new EventSource('/events')
    const follow = (event: 'snapshot' | 'update') => {
      source.addEventListener(event, ({ data }: MessageEvent<string>) => {
        const update = JSON.parse(data) as DashboardUpdate
        setConnection('live')
        setState((before) => next(event === 'snapshot' ? fresh(before) : before, update))
      })
    }
    follow('snapshot')
    follow('update')
    source.onerror = () => {
      setConnection('lost')
    }
    return () => {
      source.close()
    }
  }, [])
  return [state, connection]
}

/** Clears the data that a snapshot sends again. The activity samples stay. */
function fresh(before: JobState | undefined): JobState | undefined {
  return before && { ...before, points: [], lines: [], dropped: 0 }
}

let numbered = 0

function next(before: JobState | undefined, update: DashboardUpdate): JobState {
  const { at, job, points, lines, dropped } = update
  const numberedLines = lines.map((line) => ({ ...line, number: numbered++ }))
  const ranks = new Map(job.ranks.map((rank) => [rank.rank, partsOf(rank)] as const))
  const earliest = at - ACTIVITY_SECONDS
  const samples = (before?.samples ?? []).filter((sample) => sample.at >= earliest)
  const isRunning = job.phase === 'running'
  return {
    ...before,
    ...update,
    points: joined(before?.points, points, KEPT_POINTS),
    lines: joined(before?.lines, numberedLines, KEPT_LINES),
    dropped: (before?.dropped ?? 0) + dropped,
    samples: isRunning ? [...samples, { at, ranks }] : (before?.samples ?? []),
    // JSON omits undefined values. Omitted links and steps stay, but an omitted report is cleared.
    report: update.report,
  }
}

function joined<T>(before: readonly T[] = [], more: readonly T[], most: number) {
  return more.length === 0 ? before : [...before, ...more].slice(-most)
}

/** Splits time outside operations into computing and idle. Any other state takes all the time. */
function partsOf({ state, computing }: RankView): ActivityParts {
  const isMeasured = ['computing', 'idle', 'running'].includes(state) && computing !== undefined
  if (!isMeasured) return { [state]: 1 }
  return { computing, idle: 1 - computing }
}
