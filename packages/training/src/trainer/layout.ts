import { argumentError } from '@tsrun/core'
import {
  defaultGroup,
  initDeviceMesh,
  initProcessGroup,
  isInitialized,
  type DeviceMesh,
  type ProcessGroup,
} from '@tsrun/distributed'
import { describe } from '../model/describe.ts'

/**
 * The mesh axes. `dp`: replicas. `shard`: ranks that shard the state of a replica (`zero`). `pp`:
 * pipeline stages. `cp`: context parallel ranks, each with a part of every sequence. `tp`: tensor
 * parallel ranks, each with a part of every layer.
 */
const AXES = ['dp', 'shard', 'pp', 'cp', 'tp'] as const
type Axis = (typeof AXES)[number]

/** The number of ranks along each axis; default 1. One axis may be -1, for all remaining ranks. */
export type MeshShape = Readonly<Partial<Record<Axis, number>>>

/** A mesh of `initDeviceMesh` with some of the axes `dp`, `shard`, `pp`, `cp` and `tp`. */
export interface AnyMesh {
  readonly axes: readonly string[]
  readonly shape: Readonly<Record<string, number>>
  readonly world: ProcessGroup
  rankAt(...coordinate: never[]): number
}

/** The groups of this rank, one for each axis. */
export interface Layout extends Readonly<Record<Axis, ProcessGroup>> {
  readonly world: ProcessGroup
  /** The group that averages gradients: the ranks along `dp` and `cp`. */
  readonly averaged: ProcessGroup
  /** This replica's part of each batch: the index of the replica, and the number of replicas. */
  readonly share: readonly [index: number, count: number]
}

/** Creates the groups of this rank along all axes. By default, all ranks are replicas. */
export async function layoutOf(
  given: MeshShape | AnyMesh | ProcessGroup | undefined,
): Promise<Layout> {
  const mesh = await meshOf(given)
  const { dp, shard, cp } = mesh
  const { world: averaged } = await mesh.get('dp', 'cp')
  const share = [dp.rank * shard.size + shard.rank, dp.size * shard.size] as const
  const { pp, tp, world } = mesh
  return { world, averaged: cp.size === 1 ? dp : averaged, share, dp, shard, pp, cp, tp }
}

async function meshOf(
  given: MeshShape | AnyMesh | ProcessGroup = { dp: -1 },
): Promise<DeviceMesh<Axis>> {
  const isMesh = 'rankAt' in given
  if (isMesh && AXES.every((axis) => axis in given)) return given as AnyMesh & DeviceMesh<Axis>
  const [world, sizes]: readonly [ProcessGroup, MeshShape] = isMesh
    ? [given.world, given.shape]
    : 'allReduce' in given
      ? [given, { dp: -1 }]
      : [await ourGroup(), given]
  const unknown = Object.keys(sizes).find((axis) => !(AXES as readonly string[]).includes(axis))
  if (unknown !== undefined) {
    throw argumentError('mesh', `the axis ${unknown}`, `axes named ${AXES.join(', ')}`)
  }
  const shape = { dp: 1, shard: 1, pp: 1, cp: 1, tp: 1, ...sizes }
  // Keep the axis order of a given mesh, so that ranks keep their coordinates.
  const whole = isMesh ? { ...sizes, ...shape } : resolved(shape, world.size)
  return await initDeviceMesh(whole, world)
}

async function ourGroup(): Promise<ProcessGroup> {
  return isInitialized() ? defaultGroup() : await initProcessGroup()
}

/** Replaces the size -1 of an axis by the number of remaining ranks. */
function resolved(shape: Record<Axis, number>, ranks: number): Record<Axis, number> {
  const [axis, another] = AXES.filter((each) => shape[each] === -1)
  if (another !== undefined) {
    throw argumentError('mesh', describe(shape), 'at most one axis of size -1')
  }
  if (axis === undefined) return shape
  const others = AXES.reduce((product, each) => product * Math.abs(shape[each]), 1)
  return { ...shape, [axis]: Math.max(1, Math.floor(ranks / others)) }
}
