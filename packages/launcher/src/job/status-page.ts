import { createLogger } from '@tsrun/core'
import { StatusPage } from '@tsrun/telemetry'
import type { RankProcess } from '../processes/rank-process.ts'
import type { Job } from './job.ts'
import { ranksOf, worldSizeOf, type NodePlan } from './nodes.ts'

/** The status page of this host in one life of a job. */
export interface Board {
  /** The variables with which ranks find it. */
  readonly environment: Readonly<Record<string, string>>
  /** Tells the engines of the others, if a rank has failed, that they wait in vain. */
  abort(ranks: readonly Pick<RankProcess, 'rank' | 'end'>[]): void
  close(): void
}

/** Without a page the job runs all the same. */
export function openBoard({ options, script }: Job, plan: NodePlan, restartCount: number): Board {
  try {
    const page = new StatusPage({
      runId: plan.runId,
      script,
      worldSize: worldSizeOf(plan),
      restartCount,
      slots: ranksOf(plan, options.nodeRank).length,
    })
    return {
      environment: { TSRUN_STATUS_PAGE: page.path },
      abort: (ranks) => {
        const failed = ranks.find(({ end }) => end !== undefined && end.exitCode !== 0)
        if (failed !== undefined) page.abort(failed.rank)
      },
      close: () => {
        page.close()
      },
    }
  } catch (error) {
    createLogger('launcher').info({ reason: (error as Error).message }, 'no status page')
    // one that the launcher of this launcher made is not ours
    return {
      environment: { TSRUN_STATUS_PAGE: '' },
      abort: () => undefined,
      close: () => undefined,
    }
  }
}
