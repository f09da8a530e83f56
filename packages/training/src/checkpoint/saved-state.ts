import { inspect, isDeepStrictEqual } from 'node:util'
import { shown, tsrError } from '@tsrun/core'
import type { CheckpointState } from './state.ts'

/** What is saved beside tensors; that of rank 0 counts. */
export interface SavedState extends CheckpointState {
  /** Steps of training so far. */
  readonly step: number
  /** Where the data loader stands, or what else JSON can hold. */
  readonly data?: unknown
  /** Random seeds by name. */
  readonly seeds?: Readonly<Record<string, number>>
}

export function checkArguments({ step }: SavedState, keep: number): void {
  const isCount = (value: number, lowest: number) => Number.isSafeInteger(value) && value >= lowest
  if (!isCount(step, 0)) {
    const expected = 'a whole number from 0'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'step', value: shown(step), expected })
  }
  if (keep !== Infinity && !isCount(keep, 1)) {
    const expected = 'a whole number from 1'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'keep', value: shown(keep), expected })
  }
}

type Beside = Required<Pick<SavedState, 'data' | 'seeds'>>

export const nothingBeside: Beside = { data: null, seeds: {} }

/** What is saved beside tensors as it is now: it may be the loader's own, which goes on meanwhile. */
export function copyBeside({ data = null, seeds = {} }: SavedState): Beside {
  return { data: copyOf('data', data), seeds: copyOf('seeds', seeds) }
}

function copyOf<T>(name: string, value: T): T {
  let copy: unknown
  try {
    copy = JSON.parse(JSON.stringify(value))
  } catch {
    copy = undefined
  }
  if (isDeepStrictEqual(copy, value)) return copy as T
  const expected = 'a value that comes back from JSON as it was'
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: inspect(value), expected })
}
