import { tsrError } from '@tsrun/core'
import { joinWorld, type Past } from './groups/join/join.ts'
import type { InitOptions } from './groups/join/options.ts'
import { deviceMeshOf, type DeviceMesh } from './groups/mesh.ts'
import type { JoinOptions, ProcessGroup } from './process-group.ts'

/*
 * Functions of torch.distributed for joining and leaving a job. `initProcessGroup` makes the
 * default group, which is the only global state of this package.
 */

const past: Past = { departures: new Set() }
/** Whether there is a default group. If so, it is the group that was created last. */
let hasGroup = false
let isJoining = false

/** The default group. @throws ERR_TSR_NOT_INITIALIZED */
export function defaultGroup(operation = 'defaultGroup'): ProcessGroup {
  const { group } = past
  if (!hasGroup || group === undefined) throw tsrError('ERR_TSR_NOT_INITIALIZED', { operation })
  return group
}

/**
 * Joins the job that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, set by `tsrun`)
 * and makes the group of all its ranks the default group. If srun, mpirun or mpiexec started the process
 * without `tsrun`, it derives these variables from the launcher's own variables. Without a launcher, it
 * makes a world of one rank. After all ranks have left the job, they may join again.
 *
 * @example
 * const group = await initProcessGroup()
 * const buffer = Float32Array.of(group.rank)
 * await group.allReduce(buffer)
 * await destroyProcessGroup()
 *
 * @throws ERR_TSR_ENVIRONMENT, ERR_TSR_STORE_UNREACHABLE, ERR_TSR_TIMEOUT naming the missing
 * ranks, ERR_TSR_CONNECT, ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_PACKAGE_MISSING, ERR_TSR_ARGUMENT
 * (also for an unknown option)
 */
export async function initProcessGroup(options: InitOptions = {}): Promise<ProcessGroup> {
  if (isInitialized() || isJoining) throw tsrError('ERR_TSR_ALREADY_INITIALIZED', {})
  isJoining = true
  try {
    const group = await joinWorld(options, past)
    hasGroup = true
    return group
  } finally {
    isJoining = false
  }
}

/** Leaves the job. Messages that were already sent still arrive. */
export async function destroyProcessGroup(): Promise<void> {
  const leaving = defaultGroup('destroyProcessGroup')
  hasGroup = false
  await leaving.destroy()
  if (past.group === leaving) delete past.group
}

/** Whether this process has joined a job that has not ended. */
export function isInitialized(): boolean {
  return hasGroup && past.group?.world.hasEnded === false
}

/** The rank of this process in the default group. @throws ERR_TSR_NOT_INITIALIZED */
export function getRank(): number {
  return defaultGroup('getRank').rank
}

/** The number of ranks in the default group. @throws ERR_TSR_NOT_INITIALIZED */
export function getWorldSize(): number {
  return defaultGroup('getWorldSize').size
}

/**
 * Arranges the ranks of the world, or of `parent`, in a grid with named axes; the last axis varies
 * fastest.
 *
 * @example
 * const mesh = await initDeviceMesh({ dp: 2, pp: 2 })
 * mesh.pp // this rank's group along the pipeline
 */
export async function initDeviceMesh<Axis extends string>(
  shape: Readonly<Record<Axis, number>>,
  parent?: ProcessGroup,
  options?: JoinOptions,
): Promise<DeviceMesh<Axis>> {
  return await deviceMeshOf(parent ?? defaultGroup('initDeviceMesh'), shape, options)
}
