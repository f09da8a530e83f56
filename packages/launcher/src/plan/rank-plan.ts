import { toEnvironment } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'
import { ranksOf, worldSizeOf, type NodePlan } from '../nodes/node-plan.ts'
import { deviceEnvironment, type Devices } from './devices.ts'

/** What one rank is started with. */
export interface RankPlan {
  readonly rank: number
  /** What the launcher adds to its own environment for this rank. */
  readonly environment: Readonly<Record<string, string>>
  /** Program and arguments. */
  readonly command: readonly [string, ...string[]]
}

/** What all ranks of one life of the job on this host share. */
export interface JobPlan {
  readonly options: Pick<JobOptions, 'nodeRank' | 'scriptArguments'>
  readonly node: string
  readonly nodeArguments: readonly string[]
  readonly script: string
  readonly nodes: NodePlan
  readonly token: string
  readonly restartCount: number
  /** The launcher's environment, on which that of the ranks is laid. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly devices: Devices
  /** More variables, the same for all ranks. */
  readonly extraEnvironment: Readonly<Record<string, string>>
}

/** Plans every rank of a job on this host. */
export function planRanks(plan: JobPlan): RankPlan[] {
  const { nodes, options } = plan
  const { nodeRank, scriptArguments } = options
  const ranks = ranksOf(nodes, nodeRank)
  return ranks.map((rank, localRank) => ({
    rank,
    environment: {
      ...toEnvironment({
        rank,
        worldSize: worldSizeOf(nodes),
        localRank,
        localWorldSize: ranks.length,
        nodeRank,
        nnodes: nodes.nodes.length,
        masterAddr: nodes.master.host,
        masterPort: nodes.master.port,
        runId: nodes.runId,
        token: plan.token,
        restartCount: plan.restartCount,
      }),
      ...deviceEnvironment(plan.devices, plan.env, localRank, ranks.length),
      ...plan.extraEnvironment,
    },
    command: [plan.node, ...plan.nodeArguments, plan.script, ...scriptArguments],
  }))
}
