import { argumentError, tsrError } from '@tsrun/core'
import type { JoinOptions, ProcessGroup } from '../process-group.ts'

type Coordinate<Axis extends string> = Readonly<Record<Axis, number>>

/** The properties of a mesh besides its axes. */
export interface MeshFacts<Axis extends string> {
  /** Names of the axes. The last axis varies fastest from one rank to the next. */
  readonly axes: readonly Axis[]
  /** Number of ranks along each axis. */
  readonly shape: Coordinate<Axis>
  /** Number of ranks. */
  readonly size: number
  /** This rank's position along each axis. */
  readonly coordinate: Coordinate<Axis>
  /** The group of all ranks of the mesh. */
  readonly world: ProcessGroup
  /** Returns the rank in `world` at a coordinate. Omitted axes take this rank's position. */
  rankAt(coordinate: Partial<Coordinate<Axis>>): number
  /**
   * Returns the sub-mesh along the given axes that contains this rank. Its axes have the given
   * order, and its `world` is one group over all of them. All ranks of the sub-mesh call `get`. A
   * second call returns the same sub-mesh.
   *
   * @example
   * const shards = await mesh.get('dp', 'tp')
   * await shards.world.allReduce(buffer) // over both axes at once
   */
  get<Part extends Axis>(...axes: readonly Part[]): Promise<DeviceMesh<Part>>
}

/**
 * The ranks of a group in a grid with named axes. Each axis is also a property: this rank's group
 * along that axis.
 */
export type DeviceMesh<Axis extends string> = MeshFacts<Axis> & Readonly<Record<Axis, ProcessGroup>>

/** Names that an axis must not have. An axis named `then` would make the mesh a thenable. */
const reserved: ReadonlySet<string> = new Set<keyof MeshFacts<string> | 'then'>([
  ...(['axes', 'shape', 'size', 'coordinate', 'world'] as const),
  ...(['rankAt', 'get', 'then'] as const),
])

/**
 * Arranges the ranks of `world` in a grid and makes this rank's group along each axis. All ranks
 * call it with the same shape. An axis of size 1 gives a group of one.
 *
 * @throws ERR_TSR_MESH_SHAPE when the sizes do not multiply to the number of ranks
 */
export async function deviceMeshOf<Axis extends string>(
  world: ProcessGroup,
  shape: Coordinate<Axis>,
  options: JoinOptions = {},
): Promise<DeviceMesh<Axis>> {
  const axes = checkShape(world, shape)
  const coordinate = coordinateIn(shape, world.rank)
  const making = axes.map(async (axis) => {
    const ranks = ranksAlong(shape, coordinate, [axis])
    return await world.newGroup(ranks, { ...options, name: nameOf(axis, ranks) })
  })
  const made = await Promise.allSettled(making)
  const failed = made.find((result) => result.status === 'rejected')
  if (failed !== undefined) {
    const rest = made.filter((result) => result.status === 'fulfilled')
    await Promise.all(rest.map(({ value }) => value.destroy()))
    throw failed.reason
  }
  const groups = Object.fromEntries(
    axes.map((axis, i) => [axis, (made[i] as PromiseFulfilledResult<ProcessGroup>).value]),
  ) as Record<Axis, ProcessGroup>
  return meshOf(world, shape, groups, options)
}

function meshOf<Axis extends string>(
  world: ProcessGroup,
  shape: Coordinate<Axis>,
  groups: Readonly<Record<Axis, ProcessGroup>>,
  options: JoinOptions,
): DeviceMesh<Axis> {
  const axes = axesOf(shape)
  const coordinate = coordinateIn(shape, world.rank)
  const parts = new Map<string, Promise<unknown>>()
  const makePart = async <Part extends Axis>(
    wanted: readonly Part[],
  ): Promise<DeviceMesh<Part>> => {
    const ranks = ranksAlong(shape, coordinate, wanted)
    const flat =
      wanted.length === 1
        ? groups[wanted[0]!]
        : wanted.join() === axes.join()
          ? world
          : await world.newGroup(ranks, { ...options, name: nameOf(wanted.join('.'), ranks) })
    return meshOf(flat, pick(shape, wanted), pick(groups, wanted), options)
  }
  return {
    axes,
    shape,
    size: world.size,
    coordinate,
    world,
    rankAt: (given) => rankOf(shape, { ...coordinate, ...given }),
    get: async <Part extends Axis>(...wanted: readonly Part[]) => {
      checkAxes(axes, wanted)
      const key = wanted.join()
      const part = parts.get(key) ?? makePart(wanted)
      parts.set(key, part)
      // Forget the failed attempt, so that the caller can retry.
      part.catch(() => parts.delete(key))
      return (await part) as DeviceMesh<Part>
    },
    ...groups,
  }
}

function nameOf(axes: string, ranks: readonly number[]): string {
  return `${axes} [${ranks.join(',')}]`
}

function checkShape<Axis extends string>(world: ProcessGroup, shape: Coordinate<Axis>): Axis[] {
  const axes = axesOf(shape)
  const text = JSON.stringify(shape)
  for (const axis of axes) {
    // JavaScript objects order integer keys first, which would reorder the axes.
    if (
      !Number.isInteger(shape[axis]) ||
      shape[axis] < 1 ||
      reserved.has(axis) ||
      /^\d+$/.test(axis)
    ) {
      throw argumentError(
        'shape',
        text,
        `axes with sizes of at least 1, and none named by a number or ${[...reserved].join(', ')}`,
      )
    }
  }
  const product = sizeOf(shape)
  if (product !== world.size) {
    throw tsrError('ERR_TSR_MESH_SHAPE', { shape: text, product, size: world.size })
  }
  return axes
}

function checkAxes(axes: readonly string[], wanted: readonly string[]): void {
  const isDistinct = new Set(wanted).size === wanted.length
  if (wanted.length > 0 && isDistinct && wanted.every((axis) => axes.includes(axis))) return
  throw argumentError(
    'axes',
    wanted.join(', '),
    `one or more of the axes ${axes.join(', ')}, each once`,
  )
}

function axesOf<Axis extends string>(shape: Coordinate<Axis>): Axis[] {
  return Object.keys(shape) as Axis[]
}

function pick<Axis extends string, T>(
  record: Readonly<Record<Axis, T>>,
  axes: readonly Axis[],
): Record<Axis, T> {
  return Object.fromEntries(axes.map((axis) => [axis, record[axis]])) as Record<Axis, T>
}

/** Number of ranks. */
function sizeOf<Axis extends string>(shape: Coordinate<Axis>): number {
  return axesOf(shape).reduce((product, axis) => product * shape[axis], 1)
}

function coordinateIn<Axis extends string>(
  shape: Coordinate<Axis>,
  rank: number,
): Record<Axis, number> {
  const coordinate = {} as Record<Axis, number>
  let rest = rank
  for (const axis of axesOf(shape).reverse()) {
    coordinate[axis] = rest % shape[axis]
    rest = Math.floor(rest / shape[axis])
  }
  return coordinate
}

/** @throws ERR_TSR_ARGUMENT for a coordinate outside the mesh or an unknown axis */
function rankOf<Axis extends string>(
  shape: Coordinate<Axis>,
  coordinate: Coordinate<Axis>,
): number {
  const axes = axesOf(shape)
  for (const axis of axesOf(coordinate)) {
    const at = coordinate[axis]
    const isInside = Number.isInteger(at) && at >= 0 && at < shape[axis]
    if (isInside && axes.includes(axis)) continue
    throw argumentError(
      'coordinate',
      JSON.stringify(coordinate),
      `from 0 to below ${JSON.stringify(shape)}`,
    )
  }
  return axes.reduce((rank, axis) => rank * shape[axis] + coordinate[axis], 0)
}

/**
 * Returns the ranks along `axes` that have this coordinate on all other axes. The last axis varies
 * fastest.
 */
function ranksAlong<Axis extends string>(
  shape: Coordinate<Axis>,
  coordinate: Coordinate<Axis>,
  axes: readonly Axis[],
): number[] {
  const part = pick(shape, axes)
  return Array.from({ length: sizeOf(part) }, (_, i) =>
    rankOf(shape, { ...coordinate, ...coordinateIn(part, i) }),
  )
}
