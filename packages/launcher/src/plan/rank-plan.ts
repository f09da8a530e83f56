import { toEnvironment } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'

/** What one rank is started with. */
export interface RankPlan {
  readonly rank: number
  /** What the launcher adds to its own environment for this rank. */
  readonly environment: Readonly<Record<string, string>>
  /** Program and arguments. */
  readonly command: readonly [string, ...string[]]
}

/** What all ranks of one life of the job share. */
export interface JobPlan {
  readonly options: Pick<JobOptions, 'nproc' | 'scriptArguments'>
  readonly node: string
  readonly nodeArguments: readonly string[]
  readonly script: string
  readonly masterAddr: string
  readonly masterPort: number
  readonly runId: string
  readonly token: string
  readonly restartCount: number
  /** More variables, the same for all ranks. */
  readonly extraEnvironment: Readonly<Record<string, string>>
}

/** Plans every rank of a job on this host. */
export function planRanks(plan: JobPlan): RankPlan[] {
  const { nproc, scriptArguments } = plan.options
  return Array.from({ length: nproc }, (_, rank) => ({
    rank,
    environment: {
      ...toEnvironment({
        rank,
        worldSize: nproc,
        localRank: rank,
        localWorldSize: nproc,
        nodeRank: 0,
        nnodes: 1,
        masterAddr: plan.masterAddr,
        masterPort: plan.masterPort,
        runId: plan.runId,
        token: plan.token,
        restartCount: plan.restartCount,
      }),
      ...plan.extraEnvironment,
    },
    command: [plan.node, ...plan.nodeArguments, plan.script, ...scriptArguments],
  }))
}
