import { tsrError } from '@tsrun/core'

/*
 * Where ranks are in a grid with named axes, of which the last is the fastest.
 */

type Shape<Axis extends string> = Readonly<Record<Axis, number>>

function axesOf<Axis extends string>(shape: Shape<Axis>): Axis[] {
  return Object.keys(shape) as Axis[]
}

/** The place of a rank along each axis. */
export function placesOf<Axis extends string>(
  shape: Shape<Axis>,
  rank: number,
): Record<Axis, number> {
  const places = {} as Record<Axis, number>
  let rest = rank
  for (const axis of axesOf(shape).reverse()) {
    places[axis] = rest % shape[axis]
    rest = Math.floor(rest / shape[axis])
  }
  return places
}

/** @throws ERR_TSR_ARGUMENT for a place outside, or an axis that does not exist */
export function rankOf<Axis extends string>(
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
export function strided<Axis extends string>(
  shape: Shape<Axis>,
  through: Readonly<Record<Axis, number>>,
  axis: Axis,
): number[] {
  return Array.from({ length: shape[axis] }, (_, i) => rankOf(shape, { ...through, [axis]: i }))
}

/** The ranks of several axes, through a place; the last of `axes` is the fastest. */
export function flattened<Axis extends string>(
  shape: Shape<Axis>,
  through: Readonly<Record<Axis, number>>,
  axes: readonly Axis[],
): number[] {
  const part = Object.fromEntries(axes.map((axis) => [axis, shape[axis]])) as Record<Axis, number>
  const size = axes.reduce((all, axis) => all * shape[axis], 1)
  return Array.from({ length: size }, (_, i) => rankOf(shape, { ...through, ...placesOf(part, i) }))
}
