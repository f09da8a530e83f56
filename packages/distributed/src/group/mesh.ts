import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '../process-group.ts'
import { newGroupOf } from './new-group.ts'

/** Facts of a mesh that are no axes. */
export interface MeshFacts<Axis extends string> {
  /** Number of ranks along each axis. */
  readonly shape: Readonly<Record<Axis, number>>
  /** This rank's place along each axis. */
  readonly coordinate: Readonly<Record<Axis, number>>
  /** The group the mesh lies over. */
  readonly world: ProcessGroup
}

/** The ranks of a group as a grid with named axes; each axis is this rank's group along it. */
export type DeviceMesh<Axis extends string> = MeshFacts<Axis> & Readonly<Record<Axis, ProcessGroup>>

const reserved: readonly string[] = [
  'shape',
  'coordinate',
  'world',
] satisfies (keyof MeshFacts<string>)[]

/**
 * Lays the ranks of `world` out as a grid, the last axis fastest, and makes this rank's group along
 * each axis. All ranks call it with the same shape; an axis of size 1 is a group of one.
 *
 * @throws ERR_TSR_MESH_SHAPE when the sizes do not multiply to the number of ranks
 */
export async function deviceMeshOf<Axis extends string>(
  world: ProcessGroup,
  shape: Readonly<Record<Axis, number>>,
): Promise<DeviceMesh<Axis>> {
  const axes = checkShape(world, shape)
  const coordinate = {} as Record<Axis, number>
  const groups = {} as Record<Axis, ProcessGroup>
  let stride = world.size
  for (const axis of axes) {
    const length = shape[axis]
    stride /= length
    const place = Math.floor(world.rank / stride) % length
    const first = world.rank - place * stride
    const ranks = Array.from({ length }, (_, i) => first + i * stride)
    coordinate[axis] = place
    groups[axis] = await newGroupOf(world, ranks, { name: `${axis} [${ranks.join(',')}]` })
  }
  return { shape, coordinate, world, ...groups }
}

function checkShape<Axis extends string>(
  world: ProcessGroup,
  shape: Readonly<Record<Axis, number>>,
): Axis[] {
  const axes = Object.keys(shape) as Axis[]
  const text = JSON.stringify(shape)
  for (const axis of axes) {
    if (!Number.isInteger(shape[axis]) || shape[axis] < 1 || reserved.includes(axis)) {
      const expected = `axes with sizes of at least 1, and none named ${reserved.join(', ')}`
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'shape', value: text, expected })
    }
  }
  const product = axes.reduce((all, axis) => all * shape[axis], 1)
  if (product !== world.size) {
    throw tsrError('ERR_TSR_MESH_SHAPE', { shape: text, product, size: world.size })
  }
  return axes
}
