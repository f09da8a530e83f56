import { monotonicNow } from '@tsrun/core'
import { StatusPage, type RankStatus } from '@tsrun/distributed/record'
import { logProblem } from '../logs/log.ts'
import type { RankPlace } from '../protocol/nodes.ts'
import { statFields, type RankProcess } from './process/rank-process.ts'
import type { Job } from './job.ts'
import { ranksOf, worldSizeOf, type NodePlace } from './nodes.ts'

/** Opens the status page of this host for one attempt of a job. If that fails, the job runs without one. */
export function openStatusPage(
  { script }: Job,
  { plan, nodeRank }: NodePlace,
  restartCount: number,
  socket: string | undefined,
) {
  let page: StatusPage | undefined
  try {
    page = new StatusPage({
      runId: plan.runId,
      script,
      worldSize: worldSizeOf(plan),
      restartCount,
      socket,
      slots: ranksOf(plan, nodeRank).length,
    })
  } catch (error) {
    logProblem(error, 'no status page')
  }
  let last: readonly RankStatus[] | undefined
  const read = (): readonly RankStatus[] => last ?? page?.read().ranks ?? []
  return {
    /** The path of the page for the ranks. Without a page, hides the variable of an outer job. */
    environment: { TSRUN_STATUS_PAGE: page?.path ?? '' },
    /** If a rank has failed, tells the engines of the other ranks to stop waiting. */
    abort: (ranks: readonly RankProcess[]): void => {
      const failed = ranks.find(({ end }) => end !== undefined && end.exitCode !== 0)
      if (failed !== undefined) page?.abort(failed.rank)
    },
    /** The state of each rank that has joined a group, by rank. */
    places: (): ReadonlyMap<number, RankPlace> => {
      const ranks = read()
      const now = monotonicNow()
      return new Map(
        ranks.map(({ rank, pid, state, operation, group, sequence, since }) => [
          rank,
          {
            state,
            operation,
            group,
            sequence,
            milliseconds: now - since,
            isSuspended: isSuspended(pid),
          },
        ]),
      )
    },
    /** Marks the rank as ended when its process ends. */
    follow: (process: RankProcess, localRank: number): void => {
      void process.ended.then(() => {
        if (last === undefined) page?.end(localRank, process, process.fate!)
      })
    },
    /** The states of the ranks of this host; after `close`, the last states. */
    ranks: read,
    close: (): void => {
      last = read()
      page?.close()
    },
  }
}

function isSuspended(pid: number): boolean {
  return ['T', 't'].includes(statFields(pid)?.[0] ?? '')
}
