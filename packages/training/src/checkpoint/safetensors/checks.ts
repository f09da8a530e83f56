import { crc32 } from 'node:zlib'
import type { TensorValues } from './dtypes.ts'

/** What is known about the values of a tensor. */
export interface Checks {
  readonly crc32: number
  /** The first NaN or infinite value, if any. */
  readonly notFinite?: number | undefined
}

/** @param former - the checks of the values before these; default: there are none */
export function check(values: TensorValues, former?: Checks): Checks {
  return {
    crc32: crc32(values, former?.crc32),
    notFinite: former?.notFinite ?? firstNotFinite(values),
  }
}

/** Returns the first NaN or infinite value; undefined if there is none. */
export function firstNotFinite(values: TensorValues): number | undefined {
  if (!values[Symbol.toStringTag].startsWith('Float')) return undefined
  // `for of` takes 6 times as long, and `find` 20 times.
  let i = 0
  while (i < values.length && Number.isFinite(values[i])) i++
  return i < values.length ? Number(values[i]) : undefined
}
