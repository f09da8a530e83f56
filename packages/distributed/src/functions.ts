import { tsrError } from '@tsrun/core'
import type { DType, TypedArrayOf } from './dtype.ts'
import { joinWorld } from './group/init.ts'
import type { InitOptions } from './group/init-options.ts'
import { deviceMeshOf, type DeviceMesh } from './group/mesh.ts'
import { newGroupOf, type NewGroupOptions } from './group/new-group.ts'
import type { ProcessGroup } from './process-group.ts'

/*
 * torch.distributed's functions for joining and leaving, and the default group: the one that
 * `initProcessGroup` made. It is the only state of this package that is not passed around.
 */

let world: ProcessGroup | undefined
let isJoining = false

/** The default group. @throws ERR_TSR_NOT_INITIALIZED */
export function defaultGroup(operation = 'defaultGroup'): ProcessGroup {
  if (world === undefined) throw tsrError('ERR_TSR_NOT_INITIALIZED', { operation })
  return world
}

/**
 * Joins the job that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, set by
 * `tsrun`) and makes the group of all its ranks the default one. Without them: a world of one.
 *
 * @example
 * const group = await initProcessGroup()
 * const buffer = Float32Array.of(group.rank)
 * await group.allReduce(buffer)
 * await destroyProcessGroup()
 *
 * @throws ERR_TSR_ENVIRONMENT, ERR_TSR_STORE_UNREACHABLE, ERR_TSR_TIMEOUT naming ranks that did
 * not come, ERR_TSR_CONNECT, ERR_TSR_TRANSPORT_UNAVAILABLE
 */
export async function initProcessGroup(options: InitOptions = {}): Promise<ProcessGroup> {
  if (world !== undefined || isJoining) throw tsrError('ERR_TSR_ALREADY_INITIALIZED', {})
  isJoining = true
  try {
    world = await joinWorld(options)
    return world
  } finally {
    isJoining = false
  }
}

/** Leaves the job in order: what was sent still arrives. */
export async function destroyProcessGroup(): Promise<void> {
  const leaving = defaultGroup('destroyProcessGroup')
  world = undefined
  await leaving.destroy()
}

export function isInitialized(): boolean {
  return world !== undefined
}

export function getRank(): number {
  return defaultGroup('getRank').rank
}

export function getWorldSize(): number {
  return defaultGroup('getWorldSize').size
}

/** A group of some ranks of the world; only the members call it. See `NewGroupOptions`. */
export async function newGroup(
  ranks: readonly number[],
  options: NewGroupOptions & { readonly parent?: ProcessGroup } = {},
): Promise<ProcessGroup> {
  return await newGroupOf(options.parent ?? defaultGroup('newGroup'), ranks, options)
}

/**
 * The world as a grid with named axes, the last axis fastest.
 *
 * @example
 * const mesh = await initDeviceMesh({ dp: 2, pp: 2 })
 * mesh.pp // this rank's group along the pipeline
 */
export async function initDeviceMesh<Axis extends string>(
  shape: Readonly<Record<Axis, number>>,
  parent?: ProcessGroup,
): Promise<DeviceMesh<Axis>> {
  return await deviceMeshOf(parent ?? defaultGroup('initDeviceMesh'), shape)
}

export function alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
  return defaultGroup('alloc').alloc(dtype, length)
}
