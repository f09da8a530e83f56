import { tsrError } from '@tsrun/core'

type Environment = Readonly<Record<string, string | undefined>>

/** Rank and number of ranks, as far as a launcher has told them. */
export interface Place {
  readonly rank: number | undefined
  readonly worldSize: number | undefined
  /** The variable that says it. */
  readonly variable: string
}

/**
 * Variables of the processes that mpirun (Open MPI), Hydra (MPICH), a PMIx server and srun start.
 * A batch script of Slurm has SLURM_PROCID as well, but is no task of a step.
 */
const launchers = [
  { rank: 'OMPI_COMM_WORLD_RANK', worldSize: 'OMPI_COMM_WORLD_SIZE', only: undefined },
  { rank: 'PMI_RANK', worldSize: 'PMI_SIZE', only: undefined },
  { rank: 'SLURM_PROCID', worldSize: 'SLURM_NTASKS', only: 'SLURM_STEP_ID' },
  { rank: 'PMIX_RANK', worldSize: undefined, only: undefined },
] as const

/** Where a launcher of MPI programs has put this process; undefined when none has started it. */
export function placeOf(env: Environment): Place | undefined {
  for (const { rank, worldSize, only } of launchers) {
    if (env[rank] === undefined || (only !== undefined && env[only] === undefined)) continue
    const size = worldSize === undefined ? undefined : numberOf(env[worldSize])
    return { rank: numberOf(env[rank]), worldSize: size, variable: worldSize ?? rank }
  }
  return undefined
}

/** Where torchrun's variables or the caller put this process. */
export function expectedPlace(
  env: Environment,
  given: { readonly rank?: number; readonly worldSize?: number },
): Place {
  return {
    rank: given.rank ?? numberOf(env['RANK']),
    worldSize: given.worldSize ?? numberOf(env['WORLD_SIZE']),
    variable: given.worldSize === undefined ? 'WORLD_SIZE' : 'the option worldSize',
  }
}

/** @throws ERR_TSR_MPI_LAUNCH when libmpi says otherwise */
export function checkPlace(
  expected: Place,
  actual: { readonly rank: number; readonly worldSize: number },
  library: string,
): void {
  const { worldSize, rank, variable } = expected
  if (worldSize !== undefined && worldSize !== actual.worldSize) {
    const problem = `${variable} says ${worldSize} ranks, but ${library} ${actual.worldSize}`
    throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
  }
  if (rank !== undefined && rank !== actual.rank) {
    const problem = `this process is rank ${rank} of the launcher, but rank ${actual.rank} of ${library}`
    throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
  }
}

function numberOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined
}
