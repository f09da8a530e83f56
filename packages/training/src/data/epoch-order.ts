import { shown, tsrError } from '@tsrun/core'
import { checkFlag, checkSeed } from '../arguments.ts'
import { permutation } from './permutation.ts'

/** What decides the order of the examples in an epoch. */
export interface EpochOrder {
  readonly seed: number
  readonly epoch: number
  /** False: the order of the data set. */
  readonly shuffle: boolean
}

/** The examples 0 .. length - 1 in the order of an epoch, the same on every rank. */
export function epochOrder(length: number, { seed, epoch, shuffle }: EpochOrder): Int32Array {
  return shuffle
    ? permutation(length, `epoch ${String(epoch)}`, seed)
    : Int32Array.from({ length }, (_, i) => i)
}

/** @throws ERR_TSR_ARGUMENT */
export function checkOrder({ seed, epoch, shuffle }: EpochOrder): void {
  checkSeed(seed)
  checkCount('epoch', epoch, 0)
  checkFlag('shuffle', shuffle)
}

/** @throws ERR_TSR_ARGUMENT */
export function checkCount(name: string, value: number, lowest: 0 | 1, highest = Infinity): void {
  if (Number.isSafeInteger(value) && value >= lowest && value <= highest) return
  const integer = lowest === 1 ? 'a positive integer' : 'an integer, 0 or more'
  const limit = highest === Infinity ? '' : `, at most ${String(highest)}`
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value), expected: integer + limit })
}
