import { createHash } from 'node:crypto'
import { tsrError } from '../errors/tsr-error.ts'
import type { Environment } from '../schema.ts'

/*
 * Supports ranks that are started without tsrun. Reads the variables that Slurm (srun), Open MPI
 * (mpirun) and Hydra (mpiexec of MPICH and Intel MPI) set for their processes.
 */

/** The rank, world size and host of a process that another launcher has started. */
export interface LaunchedPlace {
  readonly rank: number
  readonly worldSize: number
  /** Rank on this host; undefined if the launcher does not say. */
  readonly localRank: number | undefined
  readonly localWorldSize: number | undefined
  readonly nodeRank: number | undefined
  /** Name of the variable with the number of ranks. */
  readonly variable: string
}

/** Returns the place that srun, mpirun or mpiexec gave this process, if one of them started it. */
export function launchedPlace(env: Environment): LaunchedPlace | undefined {
  const slurm = ofSlurm(env)
  const mpi =
    ofMpi(
      env,
      'OMPI_COMM_WORLD_SIZE',
      'OMPI_COMM_WORLD_RANK',
      'OMPI_COMM_WORLD_LOCAL_SIZE',
      'OMPI_COMM_WORLD_LOCAL_RANK',
    ) ?? ofMpi(env, 'PMI_SIZE', 'PMI_RANK', 'MPI_LOCALNRANKS', 'MPI_LOCALRANKID')
  // mpirun starts its daemons with srun, so the Slurm variables then describe the daemon.
  if (mpi === undefined || slurm === undefined) return mpi ?? slurm
  return mpi.rank === slurm.rank && mpi.worldSize === slurm.worldSize ? slurm : mpi
}

/**
 * Returns torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...) for a process that
 * srun, mpirun or mpiexec started. Returns no variables if they are already set, or if the world
 * has one rank.
 *
 * @throws ERR_TSR_ENVIRONMENT if the launcher does not say which host rank 0 is on
 */
export function launchedEnvironment(env: Environment): Record<string, string> {
  if (env['RANK'] !== undefined || env['WORLD_SIZE'] !== undefined) return {}
  const place = launchedPlace(env)
  if (place === undefined || place.worldSize === 1) return {}
  return {
    ...placeVariables(place),
    MASTER_ADDR: env['MASTER_ADDR'] ?? masterAddress(place, env),
    MASTER_PORT: env['MASTER_PORT'] ?? String(masterPort(place, env)),
  }
}

/** Returns torchrun's variables for the rank, local rank and node of a process. */
export function placeVariables(place: LaunchedPlace): Record<string, string> {
  const { rank, worldSize, localRank, localWorldSize, nodeRank } = place
  const node = nodeRank === undefined ? {} : { NODE_RANK: nodeRank, GROUP_RANK: nodeRank }
  const local =
    localRank === undefined || localWorldSize === undefined
      ? {}
      : { LOCAL_RANK: localRank, LOCAL_WORLD_SIZE: localWorldSize }
  const numbers = { RANK: rank, WORLD_SIZE: worldSize, ...local, ...node }
  return Object.fromEntries(Object.entries(numbers).map(([name, value]) => [name, String(value)]))
}

/** Returns the first host of a Slurm host list: `n03` for `n[03-05,9],gpu1`. */
export function firstOfNodeList(list: string): string | undefined {
  const head = /^(?:[^,[]|\[[^\]]*\])+/.exec(list.trim())?.[0]
  return head?.replaceAll(/\[([^\],-]*)[^\]]*\]/g, '$1')
}

/**
 * Derives a port from 20000 to 29999 from the job and step number. Processes of a step get the same
 * port, and steps on the same host get different ones. Returns undefined outside a Slurm step.
 */
export function portOfStep(env: Environment): number | undefined {
  const job = numberOf(env['SLURM_JOB_ID'])
  const step = stepOf(env)
  return job === undefined || step === undefined ? undefined : portOf(10 * job + step)
}

function ofSlurm(env: Environment): LaunchedPlace | undefined {
  // Batch scripts and shells in an allocation have Slurm's other variables, but no step.
  if (stepOf(env) === undefined) return undefined
  const variable =
    env['SLURM_STEP_NUM_TASKS'] === undefined ? 'SLURM_NTASKS' : 'SLURM_STEP_NUM_TASKS'
  const nodeRank = numberOf(env['SLURM_NODEID'])
  const tasks = env['SLURM_STEP_TASKS_PER_NODE'] ?? env['SLURM_TASKS_PER_NODE'] ?? ''
  return placeOf(variable, {
    rank: numberOf(env['SLURM_PROCID']),
    worldSize: numberOf(env[variable]),
    localRank: numberOf(env['SLURM_LOCALID']),
    localWorldSize: nodeRank === undefined ? undefined : tasksOfNode(tasks, nodeRank),
    nodeRank,
  })
}

/** @param variables - names of the variables for world size, rank, local size and local rank */
function ofMpi(
  env: Environment,
  ...variables: readonly [string, string, string, string]
): LaunchedPlace | undefined {
  const [worldSize, rank, localWorldSize, localRank] = variables.map((name) => numberOf(env[name]))
  return placeOf(variables[0], { rank, worldSize, localRank, localWorldSize, nodeRank: undefined })
}

type Found = { readonly [Name in keyof Omit<LaunchedPlace, 'variable'>]: number | undefined }

function placeOf(variable: string, { rank, worldSize, ...rest }: Found): LaunchedPlace | undefined {
  if (rank === undefined || worldSize === undefined || rank >= worldSize) return undefined
  return { rank, worldSize, ...rest, variable }
}

function stepOf(env: Environment) {
  return numberOf(env['SLURM_STEP_ID'] ?? env['SLURM_STEPID'])
}

/** In Slurm's notation, `2(x3),1` means three nodes with two tasks and one node with one. */
function tasksOfNode(list: string, node: number) {
  let first = 0
  for (const [, tasks, nodes = '1'] of list.matchAll(/(\d+)(?:\(x(\d+)\))?/g)) {
    first += Number(nodes)
    if (node < first) return Number(tasks)
  }
  return undefined
}

function masterAddress(place: LaunchedPlace, env: Environment) {
  if (place.localWorldSize === place.worldSize) return '127.0.0.1'
  const nodes = isOfSlurm(place) ? env['SLURM_STEP_NODELIST'] : undefined
  const first = firstOfNodeList(nodes ?? env['SLURM_JOB_NODELIST'] ?? '')
  if (first !== undefined) return first
  const expected =
    'the host of rank 0, the same on all ranks, because this launcher does not say which one it is ' +
    '(mpirun -x MASTER_ADDR=node0, mpiexec -genv MASTER_ADDR node0)'
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'MASTER_ADDR', value: 'not set', expected })
}

function masterPort(place: LaunchedPlace, env: Environment) {
  // The job name is different for each run of mpirun.
  const name = env['PMIX_NAMESPACE']
  if (isOfSlurm(place) || name === undefined) return portOfStep(env) ?? 29_500
  return portOf(createHash('sha256').update(name).digest().readUInt32BE())
}

function isOfSlurm({ variable }: LaunchedPlace) {
  return variable.startsWith('SLURM_')
}

function portOf(number: number) {
  return 20_000 + (number % 10_000)
}

function numberOf(text: string | undefined) {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined
}
