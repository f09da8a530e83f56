import { toEnvironment } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'
import { deviceEnvironment, type Devices } from './devices.ts'
import { ranksOf, worldSizeOf, type NodePlan } from './nodes.ts'

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

/** In place of a port that the kernel picks. */
const CHOSEN = '(chosen at the start)'

/** What `--dry-run` prints: the environment (without the secret) and the command of each rank. */
export function describePlan(ranks: readonly RankPlan[]): string {
  const blocks = ranks.map(({ rank, environment, command }) => {
    const variables = Object.entries(withoutSecret(environment)).map(
      ([name, value]) => `  ${name}=${name === 'MASTER_PORT' && value === '0' ? CHOSEN : value}`,
    )
    return [`rank ${rank}`, ...variables, `  ${command.map(quote).join(' ')}`].join('\n')
  })
  return blocks.join('\n\n') + '\n'
}

/** The same for programs: one JSON object a rank and line. */
export function describePlanAsJson(ranks: readonly RankPlan[]): string {
  return ranks
    .map(({ rank, environment, command }) =>
      JSON.stringify({ rank, environment: withoutSecret(environment), command }),
    )
    .map((line) => line + '\n')
    .join('')
}

function withoutSecret(environment: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => name !== 'TSRUN_TOKEN'))
}

/** Quotes an argument for a POSIX shell where it needs it. */
function quote(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`
}
