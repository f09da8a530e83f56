import { flagTable, type Flag, type FlagName } from './flags.ts'
import type { FlagValues } from './command-line.ts'
import { scheduledNodes, schedulerSettings } from './scheduler.ts'

/**
 * A value and where it came from: `--nproc`, `TSRUN_NPROC`, `PET_NPROC_PER_NODE`, `SLURM_NNODES`
 * or `default`.
 */
export interface Setting {
  readonly value: string
  readonly source: string
}

export type Settings = Partial<Record<FlagName, Setting>>

type Environment = Readonly<Record<string, string | undefined>>

/**
 * Completes the flags of the command line: flag, then TSRUN_*, then PET_*, then, in a job of
 * several nodes, what the scheduler says, then the default.
 *
 * @throws ERR_TSR_USAGE when the scheduler started several launchers on a node
 */
export function completeSettings(values: FlagValues, env: Environment): Settings {
  const settings: Settings = {}
  for (const flag of flagTable) {
    const setting = find(flag, values[flag.name], withoutRank(env))
    if (setting !== undefined) settings[flag.name] = setting
  }
  const several = settings.nnodes ?? severalOf(scheduledNodes(env))
  if (several !== undefined) settings.nnodes = several
  const isAlone = several === undefined || several.value === '1'
  const scheduled = isAlone ? {} : schedulerSettings(env)
  // An endpoint of its own is complete: no part of it comes from elsewhere.
  if (settings['rdzv-endpoint'] !== undefined) {
    delete scheduled['master-addr']
    delete scheduled['master-port']
  }
  for (const { name, fallback } of flagTable) {
    const standard = fallback === undefined ? undefined : { value: fallback, source: 'default' }
    const setting = settings[name] ?? scheduled[name] ?? standard
    if (setting !== undefined) settings[name] = setting
  }
  return settings
}

/** Inside a rank TSRUN_NNODES speaks of the job that the rank belongs to, not of a new one. */
function withoutRank(env: Environment): Environment {
  const isRank = env['RANK'] !== undefined && env['TSRUN_RUN_ID'] !== undefined
  return isRank ? { ...env, TSRUN_NNODES: undefined } : env
}

function severalOf(nodes: Setting | undefined): Setting | undefined {
  return nodes?.value === '1' ? undefined : nodes
}

/** The variables that set this flag, strongest first. */
export function variablesOf(flag: Flag): string[] {
  const own = [flag.name, ...(flag.aliases ?? [])].map((name) => `TSRUN_${upperCase(name)}`)
  return flag.torchrun === undefined ? own : [...own, `PET_${upperCase(flag.torchrun)}`]
}

/** One line that says what came from the environment; undefined if nothing did. */
export function describeEnvironment(settings: Settings): string | undefined {
  const parts = Object.entries(settings)
    .filter(([, { source }]) => source !== 'default' && !source.startsWith('--'))
    .map(([name, { value, source }]) => `${name}=${value} (${source})`)
  return parts.length === 0 ? undefined : `from the environment: ${parts.join(', ')}`
}

function find(flag: Flag, value: string | undefined, env: Environment): Setting | undefined {
  if (value !== undefined) return { value, source: `--${flag.name}` }
  for (const variable of variablesOf(flag)) {
    const text = env[variable]
    if (text !== undefined && text !== '') return { value: text, source: variable }
  }
  return undefined
}

function upperCase(name: string): string {
  return name.replaceAll('-', '_').toUpperCase()
}
