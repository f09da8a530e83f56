import { toEnvironment } from '@tsrun/core'
import type { RankPlan } from '../processes/rank-process.ts'
import { colourLevel } from '../logs/presenter.ts'
import { deviceEnvironment } from './devices.ts'
import type { Job } from './job.ts'
import { ranksOf, worldSizeOf, type NodePlan } from './nodes.ts'

/** Plans the ranks of one attempt of the job on this host. @param environment - more variables for all of them */
export function planAttempt(
  { options, env, identity, devices, colour, script, nodeArguments }: Job,
  plan: NodePlan,
  restartCount: number,
  environment: Readonly<Record<string, string>> = {},
): RankPlan[] {
  const { nodeRank, scriptArguments, iface, portRange } = options
  const ranks = ranksOf(plan, nodeRank)
  const forced = options.logFormat !== 'json' && colour.stdout && env['FORCE_COLOR'] === undefined
  return ranks.map((rank, localRank) => ({
    rank,
    environment: {
      ...toEnvironment({
        rank,
        worldSize: worldSizeOf(plan),
        localRank,
        localWorldSize: ranks.length,
        nodeRank,
        nnodes: plan.nodes.length,
        masterAddr: plan.master.host,
        masterPort: plan.master.port,
        runId: plan.runId,
        token: identity.token,
        restartCount,
      }),
      ...deviceEnvironment(devices, env, localRank, ranks.length),
      ...(forced ? { FORCE_COLOR: colourLevel(process.stdout, env) } : {}),
      ...(iface === undefined ? {} : { TSRUN_IFACE: iface }),
      ...(portRange === undefined
        ? {}
        : { TSRUN_PORT_RANGE: `${portRange.first}-${portRange.last}` }),
      ...environment,
    },
    command: [process.execPath, ...nodeArguments, script, ...scriptArguments],
  }))
}

/** The nodes that `--dry-run` assumes: each has as many ranks as this one. */
export function assumedPlan({ options, identity }: Job): NodePlan {
  const { nnodes, nproc, masterAddr, masterPort } = options
  const nodes = Array.from({ length: nnodes }, (_, nodeRank) => {
    return { nodeRank, nproc, host: '', address: '' }
  })
  return { runId: identity.runId, master: { host: masterAddr, port: masterPort }, nodes }
}

/** Stands for a port that is chosen when the job starts. */
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

/** The same for programs: one JSON object per line and rank. */
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

/** Quotes an argument for a POSIX shell where it needs that. */
function quote(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`
}
