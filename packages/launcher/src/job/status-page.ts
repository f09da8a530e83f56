import { monotonicNow } from '@tsrun/core'
import { StatusPage, type RankStatus } from '@tsrun/distributed/record'
import { logProblem } from '../logs/log.ts'
import type { RankPlace } from '../protocol/nodes.ts'
import { statFields, type RankProcess } from './process/rank-process.ts'
import type { Job } from './job.ts'
import { ranksOf, worldSizeOf, type NodePlace } from './nodes.ts'

/** The status page of this host during one attempt of a job. */
export interface AttemptPage {
  /** The variables that tell the ranks the path of the page. */
  readonly environment: Readonly<Record<string, string>>
  /** If a rank has failed, tells the engines of the other ranks to stop waiting. */
  abort(ranks: readonly Pick<RankProcess, 'rank' | 'end'>[]): void
  /** What each rank does now, by rank. A rank that has joined no group is missing. */
  places(): ReadonlyMap<number, RankPlace>
  /** Marks the rank as ended when its process ends. */
  follow(process: RankProcess, localRank: number): void
  /** The states of the ranks of this host; after `close`, the last states. */
  ranks(): readonly RankStatus[]
  close(): void
}

/** Opens the page. If that fails, the job runs without one. */
export function openStatusPage(
  { script }: Pick<Job, 'script'>,
  { plan, nodeRank }: NodePlace,
  restartCount: number,
  socket: string | undefined,
): AttemptPage {
  try {
    const page = new StatusPage({
      runId: plan.runId,
      script,
      worldSize: worldSizeOf(plan),
      restartCount,
      socket,
      slots: ranksOf(plan, nodeRank).length,
    })
    let last: readonly RankStatus[] | undefined
    return {
      environment: { TSRUN_STATUS_PAGE: page.path },
      abort: (ranks) => {
        const failed = ranks.find(({ end }) => end !== undefined && end.exitCode !== 0)
        if (failed !== undefined) page.abort(failed.rank)
      },
      places: () => readPlaces(page),
      follow: (process, localRank) => {
        void process.ended.then(() => {
          if (last === undefined) page.end(localRank, process, process.fate!)
        })
      },
      ranks: () => last ?? page.read().ranks,
      close: () => {
        last = page.read().ranks
        page.close()
      },
    }
  } catch (error) {
    logProblem(error, 'no status page')
    // Override the variable, which may name the page of an outer job.
    return {
      environment: { TSRUN_STATUS_PAGE: '' },
      abort: () => undefined,
      places: () => new Map(),
      follow: () => undefined,
      ranks: () => [],
      close: () => undefined,
    }
  }
}

function readPlaces(page: StatusPage): ReadonlyMap<number, RankPlace> {
  const now = monotonicNow()
  const places = page
    .read()
    .ranks.map(({ rank, pid, state, operation, group, sequence, since }): [number, RankPlace] => {
      const milliseconds = now - since
      return [
        rank,
        { state, operation, group, sequence, milliseconds, isSuspended: isSuspended(pid) },
      ]
    })
  return new Map(places)
}

function isSuspended(pid: number): boolean {
  return ['T', 't'].includes(statFields(pid)?.[0] ?? '')
}
