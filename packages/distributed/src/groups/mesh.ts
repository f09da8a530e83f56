import { tsrError } from '@tsrun/core'
import type { JoinOptions, ProcessGroup } from '../process-group.ts'
import { newGroupOf } from './group.ts'

/** Facts and calls of a mesh that are no axes. */
export interface MeshFacts<Axis extends string> {
  /** Names of the axes, the last the fastest. */
  readonly axes: readonly Axis[]
  /** Number of ranks along each axis. */
  readonly shape: Readonly<Record<Axis, number>>
  /** Number of ranks. */
  readonly size: number
  /** This rank's place along each axis. */
  readonly coordinate: Readonly<Record<Axis, number>>
  /** The group the mesh lies over: all its ranks, the last axis fastest. */
  readonly world: ProcessGroup
  /** The rank in `world` at this place; an axis that is not named: at this rank's own. */
  rankAt(place: Readonly<Partial<Record<Axis, number>>>): number
  /** The place of a rank of `world`. */
  coordinateOf(rank: number): Readonly<Record<Axis, number>>
  /**
   * The part of the mesh that goes through this rank along these axes, in this order. Its `world` is
   * those axes flattened into one group. All ranks of that part call it; asked again, it is the same.
   *
   * @example
   * const shards = await mesh.get('dp', 'tp')
   * await shards.world.allReduce(buffer) // over both axes at once
   */
  get<Part extends Axis>(...axes: readonly Part[]): Promise<DeviceMesh<Part>>
}

/** The ranks of a group as a grid with named axes; each axis is this rank's group along it. */
export type DeviceMesh<Axis extends string> = MeshFacts<Axis> & Readonly<Record<Axis, ProcessGroup>>

/** `then` would make a promise of the mesh. */
const reserved: ReadonlySet<string> = new Set<keyof MeshFacts<string> | 'then'>([
  ...(['axes', 'shape', 'size', 'coordinate', 'world'] as const),
  ...(['rankAt', 'coordinateOf', 'get', 'then'] as const),
])

/**
 * Lays the ranks of `world` out as a grid, the last axis fastest, and makes this rank's group along
 * each axis. All ranks call it with the same shape; an axis of size 1 is a group of one.
 *
 * @throws ERR_TSR_MESH_SHAPE when the sizes do not multiply to the number of ranks
 */
export async function deviceMeshOf<Axis extends string>(
  world: ProcessGroup,
  shape: Readonly<Record<Axis, number>>,
  options: JoinOptions = {},
): Promise<DeviceMesh<Axis>> {
  const axes = checkShape(world, shape)
  const coordinate = placesOf(shape, world.rank)
  const making = axes.map(async (axis) => {
    const ranks = strided(shape, coordinate, axis)
    return await newGroupOf(world, ranks, { ...options, name: nameOf(axis, ranks) })
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
  shape: Readonly<Record<Axis, number>>,
  groups: Readonly<Record<Axis, ProcessGroup>>,
  options: JoinOptions,
): DeviceMesh<Axis> {
  const axes = Object.keys(shape) as Axis[]
  const coordinate = placesOf(shape, world.rank)
  const parts = new Map<string, Promise<unknown>>()
  const facts: MeshFacts<Axis> = {
    axes,
    shape,
    size: world.size,
    coordinate,
    world,
    rankAt: (place) => rankOf(shape, { ...coordinate, ...place }),
    coordinateOf: (rank) => {
      if (Number.isInteger(rank) && rank >= 0 && rank < world.size) return placesOf(shape, rank)
      const facts = { operation: 'coordinateOf', peer: rank, group: world.name, size: world.size }
      throw tsrError('ERR_TSR_RANK_RANGE', facts)
    },
    get: async <Part extends Axis>(...wanted: readonly Part[]) => {
      checkAxes(axes, wanted)
      const key = wanted.join()
      const part = parts.get(key) ?? partOf(facts, groups, wanted, options)
      parts.set(key, part)
      // one that failed may be asked for again
      part.catch(() => parts.delete(key))
      return (await part) as DeviceMesh<Part>
    },
  }
  return { ...facts, ...groups }
}

async function partOf<Axis extends string, Part extends Axis>(
  { axes, shape, coordinate, world }: MeshFacts<Axis>,
  groups: Readonly<Record<Axis, ProcessGroup>>,
  wanted: readonly Part[],
  options: JoinOptions,
): Promise<DeviceMesh<Part>> {
  const pick = <T>(record: Readonly<Record<Axis, T>>): Record<Part, T> =>
    Object.fromEntries(wanted.map((axis) => [axis, record[axis]])) as Record<Part, T>
  const ranks = flattened(shape, coordinate, wanted)
  const flat =
    wanted.length === 1
      ? groups[wanted[0]!]
      : wanted.join() === axes.join()
        ? world
        : await newGroupOf(world, ranks, { ...options, name: nameOf(wanted.join('.'), ranks) })
  return meshOf(flat, pick(shape), pick(groups), options)
}

function nameOf(axes: string, ranks: readonly number[]): string {
  return `${axes} [${ranks.join(',')}]`
}

function checkShape<Axis extends string>(
  world: ProcessGroup,
  shape: Readonly<Record<Axis, number>>,
): Axis[] {
  const axes = Object.keys(shape) as Axis[]
  const text = JSON.stringify(shape)
  for (const axis of axes) {
    // an object puts names that are whole numbers first, so they could not be in order
    if (
      !Number.isInteger(shape[axis]) ||
      shape[axis] < 1 ||
      reserved.has(axis) ||
      /^\d+$/.test(axis)
    ) {
      const expected = `axes with sizes of at least 1, and none named by a number or ${[...reserved].join(', ')}`
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'shape', value: text, expected })
    }
  }
  const product = axes.reduce((all, axis) => all * shape[axis], 1)
  if (product !== world.size) {
    throw tsrError('ERR_TSR_MESH_SHAPE', { shape: text, product, size: world.size })
  }
  return axes
}

function checkAxes(axes: readonly string[], wanted: readonly string[]): void {
  const isDistinct = new Set(wanted).size === wanted.length
  if (wanted.length > 0 && isDistinct && wanted.every((axis) => axes.includes(axis))) return
  const expected = `one or more of the axes ${axes.join(', ')}, each once`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'axes', value: wanted.join(', '), expected })
}

/*
 * Where ranks are in a grid with named axes, of which the last is the fastest.
 */

type Shape<Axis extends string> = Readonly<Record<Axis, number>>

function axesOf<Axis extends string>(shape: Shape<Axis>): Axis[] {
  return Object.keys(shape) as Axis[]
}

/** The place of a rank along each axis. */
function placesOf<Axis extends string>(shape: Shape<Axis>, rank: number): Record<Axis, number> {
  const places = {} as Record<Axis, number>
  let rest = rank
  for (const axis of axesOf(shape).reverse()) {
    places[axis] = rest % shape[axis]
    rest = Math.floor(rest / shape[axis])
  }
  return places
}

/** @throws ERR_TSR_ARGUMENT for a place outside, or an axis that does not exist */
function rankOf<Axis extends string>(
  shape: Shape<Axis>,
  places: Readonly<Record<Axis, number>>,
): number {
  const axes = axesOf(shape)
  for (const axis of axesOf(places)) {
    const place = places[axis]
    const isInside = Number.isInteger(place) && place >= 0 && place < shape[axis]
    if (isInside && axes.includes(axis)) continue
    const value = JSON.stringify(places)
    const expected = `places from 0 to below ${JSON.stringify(shape)}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'place', value, expected })
  }
  return axes.reduce((rank, axis) => rank * shape[axis] + places[axis], 0)
}

/** The ranks along one axis, through a place. */
function strided<Axis extends string>(
  shape: Shape<Axis>,
  through: Readonly<Record<Axis, number>>,
  axis: Axis,
): number[] {
  return Array.from({ length: shape[axis] }, (_, i) => rankOf(shape, { ...through, [axis]: i }))
}

/** The ranks of several axes, through a place; the last of `axes` is the fastest. */
function flattened<Axis extends string>(
  shape: Shape<Axis>,
  through: Readonly<Record<Axis, number>>,
  axes: readonly Axis[],
): number[] {
  const part = Object.fromEntries(axes.map((axis) => [axis, shape[axis]])) as Record<Axis, number>
  const size = axes.reduce((all, axis) => all * shape[axis], 1)
  return Array.from({ length: size }, (_, i) => rankOf(shape, { ...through, ...placesOf(part, i) }))
}
