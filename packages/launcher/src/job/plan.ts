import { hostname } from 'node:os'
import { join } from 'node:path'
import { textWidth, toEnvironment } from '@tsrun/core'
import { spansFolder } from '@tsrun/distributed/record'
import type { OutputOptions } from '../args/output-options.ts'
import type { ProgramOptions } from '../args/job-options.ts'
import { quoted } from '../args/readers.ts'
import type { RankPlan } from './process/rank-process.ts'
import { attemptDirectory } from '../logs/log-files.ts'
import { colourLevel, prefixWidth } from '../logs/presenter.ts'
import { deviceEnvironment } from './placement/devices.ts'
import type { Job } from './job.ts'
import { coreEnvironment } from './placement/numa.ts'
import { ranksOf, roleSizeOf, worldSizeOf, type NodePlace } from './nodes.ts'

const WITHOUT_WARNING = '--disable-warning=MODULE_TYPELESS_PACKAGE_JSON'

/** The minimum of COLUMNS for a rank, even if the prefix of its lines is long. */
const FEWEST_COLUMNS = 20

/** The inputs of a plan that differ between attempts. */
interface AttemptSetup {
  /** Additional environment variables for all ranks. */
  readonly environment?: Readonly<Record<string, string>>
  readonly directory?: string | undefined
}

/** Plans the ranks of one attempt of the job on this host. */
export function planAttempt(
  { program, placement, protection, output, ...job }: Job,
  { plan, nodeRank }: NodePlace,
  restartCount: number,
  setup: AttemptSetup = {},
): RankPlan[] {
  const { env, identity, devices, colour, command } = job
  const { iface, portRange, role, virtualLocalRank, binding } = placement
  const ranks = ranksOf(plan, nodeRank)
  const [executable, ...args] = command
  const forced = output.format !== 'json' && colour.stdout && env['FORCE_COLOR'] === undefined
  /** The width of the launcher's terminal without the prefix of the rank's lines. */
  const columns = (rank: number, localRank: number): string => {
    const facts = { rank, localRank, worldSize: worldSizeOf(plan), role, node: nodeRank }
    const now = { host: hostname(), pid: process.pid, generation: restartCount, startedAt: 0 }
    const prefix = prefixWidth(output, { ...facts, ...now })
    return String(Math.max(FEWEST_COLUMNS, textWidth(env) - prefix))
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
      COLUMNS: columns(rank, localRank),
      ROLE_NAME: role,
      ROLE_RANK: String(roleSizeOf(plan, role, nodeRank) + localRank),
      ROLE_WORLD_SIZE: String(roleSizeOf(plan, role)),
      ...(virtualLocalRank ? { LOCAL_RANK: '0', TSRUN_LOCAL_RANK: String(localRank) } : {}),
      ...deviceEnvironment(devices, env, localRank, ranks.length),
      ...(binding === undefined ? {} : coreEnvironment(binding, localRank, ranks.length)),
      ...withValues({
        FORCE_COLOR: forced ? colourLevel(process.stdout, env) : undefined,
        ...traceEnvironment(output, plan.runId),
        TSRUN_ACCEPT_FAULTS: program.chaos === undefined ? undefined : '1',
        TSRUN_IFACE: iface,
        TSRUN_PORT_RANGE: portRange && `${portRange.first}-${portRange.last}`,
      }),
      ...protection.environment,
      ...setup.environment,
    },
    command: [
      executable,
      ...ownNodeArguments(program, rank, localRank, setup),
      // Only the first rank of each host warns that package.json has no "type".
      ...(localRank > 0 ? [WITHOUT_WARNING] : []),
      ...args,
      ...program.arguments,
    ],
  }))
}

/** The Node arguments that only this rank gets. Node itself prints the address for a debugger. */
function ownNodeArguments(
  { profiles, inspect }: ProgramOptions,
  rank: number,
  localRank: number,
  { directory = '.' }: AttemptSetup,
): string[] {
  const folder = join(directory, String(rank))
  const args = profiles.flatMap((kind) => [`--${kind}-prof`, `--${kind}-prof-dir=${folder}`])
  if (inspect === undefined || (inspect.rank ?? rank) !== rank) return args
  const { host, port, rank: only } = inspect
  // Port 0 makes Node choose a free port.
  const own = port === undefined ? 0 : only === undefined ? port + localRank : port
  return [...args, `--inspect${only === undefined ? '' : '-brk'}=${host}:${own}`]
}

/** Empties the variables of an outer job, so that a nested job does not write into the outer trace. */
function traceEnvironment({ trace }: OutputOptions, runId: string): Record<string, string> {
  if (trace === undefined) return { TSRUN_TRACE_DIR: '' }
  return {
    TSRUN_TRACE_DIR: spansFolder(trace.directory, runId),
    TSRUN_TRACE_BYTES: String(trace.bytes),
    TSRUN_TRACE_RANGE: trace.steps ?? '',
  }
}

/** Removes variables whose value is undefined. */
function withValues(variables: Record<string, string | undefined>): Record<string, string> {
  const entries = Object.entries(variables).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as Record<string, string>
}

/** The nodes that `--dry-run` assumes: each has as many ranks as this node. */
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

/** The assumptions of `--dry-run` about the attempt. */
export function assumedSetup({ output, identity }: Job): AttemptSetup {
  const { directory = '(a new folder)' } = output
  return { directory: attemptDirectory(directory, identity.runId, 0) }
}

/** Printed for a port that is chosen when the job starts. */
const CHOSEN = '(chosen at the start)'

/** The output of `--dry-run`: the environment (without the secret) and the command of each rank. */
export function describePlan(ranks: readonly RankPlan[]): string {
  const blocks = ranks.map(({ rank, environment, command }) => {
    const variables = Object.entries(environment)
      .filter(([name]) => name !== 'TSRUN_TOKEN')
      .map(
        ([name, value]) => `  ${name}=${name.endsWith('_PORT') && value === '0' ? CHOSEN : value}`,
      )
    return [`rank ${rank}`, ...variables, `  ${command.map(quoted).join(' ')}`].join('\n')
  })
  return blocks.join('\n\n') + '\n'
}
