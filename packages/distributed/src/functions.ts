import { tsrError } from '@tsrun/core'
import type { AnyTypedArray, DType, TypedArrayOf } from './dtype.ts'
import { joinWorld } from './group/init.ts'
import type { InitOptions } from './group/init-options.ts'
import { deviceMeshOf, type DeviceMesh } from './group/mesh.ts'
import { newGroupOf, type NewGroupOptions } from './group/new-group.ts'
import type {
  CallOptions,
  MessageOptions,
  ProcessGroup,
  ReduceOptions,
  Work,
} from './process-group.ts'

/*
 * torch.distributed's functions: the calls of `ProcessGroup` on the default group, the one that
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

export function send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
  return defaultGroup('send').send(buffer, to, options)
}

export function recv(buffer: AnyTypedArray, from: number, options?: MessageOptions): Work {
  return defaultGroup('recv').recv(buffer, from, options)
}

export function isend(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
  return defaultGroup('isend').isend(buffer, to, options)
}

export function irecv(buffer: AnyTypedArray, from: number, options?: MessageOptions): Work {
  return defaultGroup('irecv').irecv(buffer, from, options)
}

export function broadcast(buffer: AnyTypedArray, root: number, options?: CallOptions): Work {
  return defaultGroup('broadcast').broadcast(buffer, root, options)
}

export function reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work {
  return defaultGroup('reduce').reduce(buffer, root, options)
}

export function allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work {
  return defaultGroup('allReduce').allReduce(buffer, options)
}

export function reduceScatter(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: ReduceOptions,
): Work {
  return defaultGroup('reduceScatter').reduceScatter(output, input, options)
}

export function allGather(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: CallOptions,
): Work {
  return defaultGroup('allGather').allGather(output, input, options)
}

export function barrier(options?: CallOptions): Work {
  return defaultGroup('barrier').barrier(options)
}

export function sendObject(value: unknown, to: number, options?: MessageOptions): Work {
  return defaultGroup('sendObject').sendObject(value, to, options)
}

export function recvObject(from: number, options?: MessageOptions): Work<unknown> {
  return defaultGroup('recvObject').recvObject(from, options)
}

export function broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T> {
  return defaultGroup('broadcastObject').broadcastObject(value, root, options)
}

export function allGatherObject<T>(value: T, options?: CallOptions): Work<T[]> {
  return defaultGroup('allGatherObject').allGatherObject(value, options)
}

export function sendSync(buffer: AnyTypedArray, to: number, options?: MessageOptions): void {
  defaultGroup('sendSync').sendSync(buffer, to, options)
}

export function recvSync(buffer: AnyTypedArray, from: number, options?: MessageOptions): void {
  defaultGroup('recvSync').recvSync(buffer, from, options)
}

export function broadcastSync(buffer: AnyTypedArray, root: number, options?: CallOptions): void {
  defaultGroup('broadcastSync').broadcastSync(buffer, root, options)
}

export function reduceSync(buffer: AnyTypedArray, root: number, options?: ReduceOptions): void {
  defaultGroup('reduceSync').reduceSync(buffer, root, options)
}

export function allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void {
  defaultGroup('allReduceSync').allReduceSync(buffer, options)
}

export function reduceScatterSync(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: ReduceOptions,
): void {
  defaultGroup('reduceScatterSync').reduceScatterSync(output, input, options)
}

export function allGatherSync(
  output: AnyTypedArray,
  input: AnyTypedArray,
  options?: CallOptions,
): void {
  defaultGroup('allGatherSync').allGatherSync(output, input, options)
}

export function barrierSync(options?: CallOptions): void {
  defaultGroup('barrierSync').barrierSync(options)
}

export function broadcastObjectSync<T>(value: T, root: number, options?: CallOptions): T {
  return defaultGroup('broadcastObjectSync').broadcastObjectSync(value, root, options)
}

export function allGatherObjectSync<T>(value: T, options?: CallOptions): T[] {
  return defaultGroup('allGatherObjectSync').allGatherObjectSync(value, options)
}

export function sendObjectSync(value: unknown, to: number, options?: MessageOptions): void {
  defaultGroup('sendObjectSync').sendObjectSync(value, to, options)
}

export function recvObjectSync(from: number, options?: MessageOptions): unknown {
  return defaultGroup('recvObjectSync').recvObjectSync(from, options)
}
