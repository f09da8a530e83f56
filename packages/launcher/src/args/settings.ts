import { firstOfNodeList, portOfStep } from '@tsrun/core'
import { flagTable, type FlagName, type FlagValues, type Values } from './flags.ts'
import type { Flag } from './flag.ts'
import { readSetting, usageError, type Setting } from './readers.ts'

export type Settings = Partial<Record<FlagName, Setting>>

export type Environment = Readonly<Record<string, string | undefined>>

/**
 * Completes the flags of the command line. The precedence is: the flag, TSRUN_*, PET_*, the variables of
 * the scheduler (only in a job of several nodes), the default.
 */
export function completeSettings(values: FlagValues, env: Environment): Settings {
  const settings: Settings = {}
  for (const flag of flagTable) {
    const setting = find(flag, values[flag.name], withoutRank(env))
    if (setting !== undefined) settings[flag.name] = setting
  }
  const several = settings.nnodes ?? scheduledNodes(env)
  if (several !== undefined) settings.nnodes = several
  const isAlone = several === undefined || several.value === '1'
  const scheduled = isAlone ? {} : schedulerSettings(env)
  // Scripts may pass an empty endpoint. Any other endpoint replaces the master address and port.
  const hasEndpoint = (settings['rdzv-endpoint']?.value ?? '') !== ''
  const completed: Settings = {}
  for (const { name, fallback } of flagTable) {
    if (hasEndpoint && (name === 'master-addr' || name === 'master-port')) continue
    const standard = fallback === undefined ? undefined : { value: fallback, source: 'default' }
    const setting = settings[name] ?? scheduled[name] ?? standard
    if (setting !== undefined) completed[name] = setting
  }
  return completed
}

/** Parses the settings. A flag without a reader keeps its text. */
export function readSettings(settings: Settings): Values {
  const values = flagTable.map(({ name, reads, off }) => {
    const setting = settings[name]
    if (setting === undefined || setting.value === off) return [name, undefined]
    return [name, reads === undefined ? setting.value : readSetting(setting, reads)]
  })
  return Object.fromEntries(values) as Values
}

/** Inside a rank, TSRUN_NNODES describes the outer job, so a nested job ignores the variable. */
function withoutRank(env: Environment): Environment {
  const isRank = env['RANK'] !== undefined && env['TSRUN_RUN_ID'] !== undefined
  return isRank ? { ...env, TSRUN_NNODES: undefined } : env
}

/** The variables that set this flag, in order of precedence. */
export function variablesOf(flag: Flag): string[] {
  const names = [flag.name, ...(flag.aliases ?? [])].filter((name) => name.length > 1)
  const own = names.map((name) => `TSRUN_${upperCase(name)}`)
  const shared = flag.torchrun === undefined ? [] : [`PET_${upperCase(flag.torchrun)}`]
  return [...own, ...shared, ...(flag.variable === undefined ? [] : [flag.variable])]
}

/** Lists the settings that came from the environment; undefined if none did. */
export function describeEnvironment(settings: Settings): string | undefined {
  const parts = Object.entries(settings)
    .filter(([, { source }]) => source !== 'default' && !source.startsWith('--'))
    .map(([name, { value, source }]) => `${name}=${value} (${source})`)
  return parts.length === 0 ? undefined : `from the environment: ${parts.join(', ')}`
}

function find(flag: Flag, value: string | undefined, env: Environment): Setting | undefined {
  if (value !== undefined) return { value, source: `--${flag.name}` }
  return first(env, variablesOf(flag))
}

function upperCase(name: string): string {
  return name.replaceAll('-', '_').toUpperCase()
}

/**
 * The number of nodes on which Slurm or Open MPI has started this command; undefined without a scheduler,
 * and for a single node.
 * A batch script of Slurm runs on only one node, so its node count is ignored.
 */
function scheduledNodes(env: Environment): Setting | undefined {
  const layout = openMpi(env) ?? slurm(env)
  if (layout === undefined) return undefined
  const { nnodes, severalTasks } = layout
  if (severalTasks === undefined) return nnodes.value === '1' ? undefined : nnodes
  throw usageError(
    `${severalTasks}: start tsrun once on each node (srun --ntasks-per-node=1, mpirun --map-by ` +
      'ppr:1:node), or use --nnodes 1 if each task is a job of its own',
  )
}

/** The number of this node and the address of node 0, in a job of several nodes. */
function schedulerSettings(env: Environment): Settings {
  const settings: Settings = {}
  const rank = first(env, [
    // Prefer Open MPI: inside a Slurm job, mpirun starts its daemons as a step, which sets SLURM_NODEID.
    'OMPI_COMM_WORLD_RANK',
    'SLURM_NODEID',
    'JOB_COMPLETION_INDEX', // Kubernetes, in an indexed Job
    'VC_TASK_INDEX', // Volcano
    'VK_TASK_INDEX',
  ])
  if (rank !== undefined) settings['node-rank'] = rank
  // Kubernetes and Volcano set these variables for PyTorch jobs.
  const address = first(env, ['MASTER_ADDR']) ?? firstHost(env)
  const port = first(env, ['MASTER_PORT']) ?? portOfSlurm(env)
  if (address !== undefined) settings['master-addr'] = address
  if (port !== undefined) settings['master-port'] = port
  return settings
}

/** Reads Slurm's number of nodes, and describes the tasks if a node has several of them. */
function slurm(env: Environment) {
  // Only a step (srun) runs tsrun on every node.
  if (env['SLURM_STEP_ID'] === undefined && env['SLURM_STEPID'] === undefined) return undefined
  const nnodes = first(env, ['SLURM_STEP_NUM_NODES', 'SLURM_NNODES', 'SLURM_JOB_NUM_NODES'])
  const tasks = first(env, ['SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS']) ?? nnodes
  if (nnodes === undefined || tasks === undefined) return undefined
  const several = `Slurm runs ${tasks.value} tasks (${tasks.source}) on ${nnodes.value} nodes`
  return { nnodes, severalTasks: tasks.value === nnodes.value ? undefined : several }
}

/** Reads Open MPI's number of nodes, and describes the processes if a node has several of them. */
function openMpi(env: Environment) {
  const tasks = first(env, ['OMPI_COMM_WORLD_SIZE'])
  const local = first(env, ['OMPI_COMM_WORLD_LOCAL_SIZE'])
  if (tasks === undefined || local === undefined) return undefined
  const several = `Open MPI runs ${local.value} processes on a node (${local.source})`
  return { nnodes: tasks, severalTasks: local.value === '1' ? undefined : several }
}

/** Derives the port from the job ID, so that jobs on the same first node use different ports. */
function portOfSlurm(env: Environment): Setting | undefined {
  const port = openMpi(env) === undefined ? portOfStep(env) : undefined
  return port === undefined ? undefined : { value: String(port), source: 'SLURM_JOB_ID' }
}

function firstHost(env: Environment): Setting | undefined {
  const nodes = openMpi(env) === undefined ? ['SLURM_STEP_NODELIST'] : []
  const list = first(env, [...nodes, 'SLURM_JOB_NODELIST'])
  const host = list && firstOfNodeList(list.value)
  return host === undefined ? undefined : { source: list!.source, value: host }
}

function first(env: Environment, variables: readonly string[]): Setting | undefined {
  for (const variable of variables) {
    const value = env[variable]
    if (value !== undefined && value !== '') return { value, source: variable }
  }
  return undefined
}
