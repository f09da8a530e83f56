import { hostname } from 'node:os'
import { textWidth, toEnvironment } from '@tsrun/core'
import { spansFolder } from '@tsrun/distributed/record'
import type { OutputOptions } from '../args/output-options.ts'
import { quoted } from '../args/readers.ts'
import type { RankPlan } from './process/rank-process.ts'
import { attemptDirectory } from '../logs/log-files.ts'
import { colourLevel, prefixWidth } from '../logs/presenter.ts'
import { deviceEnvironment } from './placement/devices.ts'
import type { Job } from './job.ts'
import { assumedDebuggers, ownNodeArguments, type AttemptSetup } from './placement/debuggers.ts'
import { coreEnvironment } from './placement/numa.ts'
import { ranksOf, roleSizeOf, worldSizeOf, type NodePlace } from './nodes.ts'

const WITHOUT_WARNING = '--disable-warning=MODULE_TYPELESS_PACKAGE_JSON'

/** `tsrun hosts` sets this variable and COLUMNS to the width of the launcher's lines. */
export const HOST_COLUMNS = 'TSRUN_HOST_COLUMNS'

/** Lower limit of COLUMNS for ranks, however long their prefix is. */
const FEWEST_COLUMNS = 20

/** Plans the ranks of one attempt of the job on this host. */
export function planAttempt(
  { program, placement, protection, output, ...job }: Job,
  { plan, nodeRank }: NodePlace,
  restartCount: number,
  setup: AttemptSetup = {},
): RankPlan[] {
  const { env, identity, devices, colour, command, isTypeless } = job
  const { iface, portRange, role, virtualLocalRank, binding } = placement
  const ranks = ranksOf(plan, nodeRank)
  const [executable, ...args] = command
  const forced = output.format !== 'json' && colour.stdout && env['FORCE_COLOR'] === undefined
  // Ranks inherit COLUMNS from the user. Otherwise, they get the launcher's width without the prefix.
  const columns = (rank: number, localRank: number): Record<string, string> => {
    const { COLUMNS, [HOST_COLUMNS]: ofLauncher } = env
    if (COLUMNS !== undefined && COLUMNS !== ofLauncher) return {}
    const facts = { rank, localRank, worldSize: worldSizeOf(plan), role, node: nodeRank }
    const now = { host: hostname(), pid: process.pid, generation: restartCount, startedAt: 0 }
    const prefix = prefixWidth(output, { ...facts, ...now })
    return { COLUMNS: String(Math.max(FEWEST_COLUMNS, textWidth(env) - prefix)) }
  }
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
        freePort: plan.master.freePort,
        runId: plan.runId,
        token: identity.token,
        restartCount,
      }),
      ...columns(rank, localRank),
      ROLE_NAME: role,
      ROLE_RANK: String(roleSizeOf(plan, role, nodeRank) + localRank),
      ROLE_WORLD_SIZE: String(roleSizeOf(plan, role)),
      ...(virtualLocalRank ? { LOCAL_RANK: '0', TSRUN_LOCAL_RANK: String(localRank) } : {}),
      ...deviceEnvironment(devices, env, localRank, ranks.length),
      ...(binding === undefined ? {} : coreEnvironment(binding, localRank, ranks.length)),
      ...withValues({
        FORCE_COLOR: forced ? colourLevel(process.stdout, env) : undefined,
        ...traceEnvironment(output, plan.runId, env),
        TSRUN_ACCEPT_FAULTS: program.chaos === undefined ? undefined : '1',
        TSRUN_IFACE: iface,
        TSRUN_PORT_RANGE: portRange && `${portRange.first}-${portRange.last}`,
      }),
      ...protectionEnvironment(protection.environment, env),
      ...setup.environment,
    },
    command: [
      executable,
      ...ownNodeArguments(program, rank, setup),
      // Only the first rank of each host prints the warning.
      ...(isTypeless && localRank > 0 ? [WITHOUT_WARNING] : []),
      ...args,
      ...program.arguments,
    ],
  }))
}

/** A nested job does not write into the outer job's trace. */
function traceEnvironment(
  { trace }: OutputOptions,
  runId: string,
  env: NodeJS.ProcessEnv,
): Record<string, string | undefined> {
  if (trace === undefined) return { TSRUN_TRACE_DIR: emptyIfSet(env['TSRUN_TRACE_DIR']) }
  return {
    TSRUN_TRACE_DIR: spansFolder(trace.directory, runId),
    TSRUN_TRACE_BYTES: String(trace.bytes),
    TSRUN_TRACE_RANGE: trace.steps ?? emptyIfSet(env['TSRUN_TRACE_RANGE']),
  }
}

/** Empties a variable that is inherited from an outer job. */
function emptyIfSet(inherited: string | undefined): string | undefined {
  return inherited === undefined ? undefined : ''
}

/** Drops the variables without a value. */
function withValues(variables: Record<string, string | undefined>): Record<string, string> {
  const entries = Object.entries(variables).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as Record<string, string>
}

/** Omits variables that are off, unless the environment has a value to override. */
function protectionEnvironment(
  variables: Readonly<Record<string, string>>,
  env: NodeJS.ProcessEnv,
): Record<string, string> {
  const isSaid = ([name, value]: [string, string]): boolean =>
    value !== '0' || env[name] !== undefined
  return Object.fromEntries(Object.entries(variables).filter(isSaid))
}

/** The nodes that `--dry-run` assumes: each has as many ranks as this one. */
export function assumedPlace({ program, placement, rendezvous, identity }: Job): NodePlace {
  const { nnodes, nproc, role } = placement
  const nodes = Array.from({ length: nnodes }, (_, nodeRank) => {
    return { id: String(nodeRank), nodeRank, nproc, host: '', address: '', role }
  })
  const freePort = program.kind === 'program' ? 0 : undefined
  const { host, port } = rendezvous
  const master = { host, port, freePort }
  const plan = { runId: identity.runId, master, nodes }
  return { plan, nodeRank: placement.nodeRank ?? 0 }
}

/** What `--dry-run` assumes about the attempt. */
export function assumedSetup(job: Job): AttemptSetup {
  const { plan, nodeRank } = assumedPlace(job)
  const { directory = '(a new folder)' } = job.output
  return {
    directory: attemptDirectory(directory, plan.runId, 0),
    debuggers: assumedDebuggers(job.program.inspect, ranksOf(plan, nodeRank)),
  }
}

/** Printed for a port that is chosen when the job starts. */
const CHOSEN = '(chosen at the start)'

/** The output of `--dry-run`: the environment (without the secret) and the command of each rank. */
export function describePlan(ranks: readonly RankPlan[]): string {
  const blocks = ranks.map(({ rank, environment, command }) => {
    const variables = Object.entries(withoutSecret(environment)).map(
      ([name, value]) => `  ${name}=${name.endsWith('_PORT') && value === '0' ? CHOSEN : value}`,
    )
    return [`rank ${rank}`, ...variables, `  ${command.map(quoted).join(' ')}`].join('\n')
  })
  return blocks.join('\n\n') + '\n'
}

/** The output of `--dry-run` for programs that read it: one line with a JSON object for each rank. */
export function describePlanAsJson(ranks: readonly RankPlan[]): string {
  return ranks
    .map(({ rank, environment, command }) => {
      const facts = { rank, environment: withoutSecret(environment), command }
      return `${JSON.stringify(facts)}\n`
    })
    .join('')
}

function withoutSecret(environment: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => name !== 'TSRUN_TOKEN'))
}
