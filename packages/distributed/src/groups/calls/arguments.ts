import { tsrError } from '@tsrun/core'
import { algorithmsOf } from '../../algorithms/select.ts'
import { knownDTypeOf } from '../../allocated-dtypes.ts'
import { dtypeNames, dtypes, dtypesOf, type AnyTypedArray, type DType } from '../../dtype.ts'
import { ANY_SOURCE, type AlgorithmName, type OperationName } from '../../operation.ts'
import type { JoinOptions } from '../../group-relations.ts'
import type { CallOptions, CollectiveOptions, Source } from '../../process-group.ts'

/** Largest tag of a user's message. */
const LARGEST_TAG = 2 ** 31 - 1

/** @throws ERR_TSR_BUFFER, ERR_TSR_ARGUMENT */
export function checkBuffer(
  operation: string,
  name: string,
  buffer: unknown,
  options: CallOptions | undefined,
): DType {
  const wanted = checkDType(options?.dtype)
  const candidates = dtypesOf(buffer)
  const dtype = wanted ?? knownDTypeOf(buffer)
  if (dtype === undefined || !candidates.includes(dtype)) {
    const kind = Object.prototype.toString.call(buffer).slice(8, -1)
    const problem =
      candidates.length === 0
        ? `${name} is a ${kind}; supported are typed arrays of ${dtypeNames.join(', ')}`
        : wanted === undefined
          ? `${name} is a ${kind}, which may hold ${candidates.join(' or ')}; pass \`dtype\`, or an array from alloc()`
          : `${name} is a ${kind}, but ${wanted} is stored in a ${dtypes[wanted].array.name}`
    throw tsrError('ERR_TSR_BUFFER', { operation, problem })
  }
  if (isDetached(buffer as AnyTypedArray)) {
    const problem = `${name} is detached: its memory was transferred elsewhere`
    throw tsrError('ERR_TSR_BUFFER', { operation, problem })
  }
  return dtype
}

function checkDType(dtype: DType | undefined): DType | undefined {
  if (dtype !== undefined && !Object.hasOwn(dtypes, dtype)) {
    const expected = `one of ${dtypeNames.join(', ')}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'dtype', value: JSON.stringify(dtype), expected })
  }
  return dtype
}

/** A detached array looks empty; Node 20 has no `detached` to ask. */
function isDetached({ length, buffer }: AnyTypedArray): boolean {
  if (length > 0) return false
  try {
    return new Uint8Array(buffer).length < 0
  } catch {
    return true
  }
}

/**
 * Refuses buffers that share memory, unless `part` is where the result of `whole` belongs anyway.
 *
 * @param place - elements of `whole` before that place; undefined where there is none
 */
export function checkOverlap(
  operation: string,
  whole: AnyTypedArray,
  part: AnyTypedArray,
  place: number | undefined,
): void {
  if (whole.buffer !== part.buffer) return
  const begin = Math.max(whole.byteOffset, part.byteOffset)
  const end = Math.min(whole.byteOffset + whole.byteLength, part.byteOffset + part.byteLength)
  const isInPlace =
    place !== undefined && part.byteOffset === whole.byteOffset + place * part.BYTES_PER_ELEMENT
  if (begin >= end || isInPlace) return
  const where =
    place === undefined ? 'it cannot be done in place' : `in place only from element ${place} on`
  const problem = `input and output overlap; ${where}`
  throw tsrError('ERR_TSR_BUFFER', { operation, problem })
}

/** Checks the buffers of reduceScatter and allGather: `whole` holds `size` slices. */
export function checkSlices(
  operation: string,
  size: number,
  whole: { readonly name: string; readonly buffer: AnyTypedArray | null },
  slice: { readonly name: string; readonly buffer: AnyTypedArray },
  options: CallOptions | undefined,
): DType {
  const dtype = checkBuffer(operation, whole.name, whole.buffer, options)
  const sliceDtype = checkBuffer(operation, slice.name, slice.buffer, options)
  const problem =
    dtype !== sliceDtype
      ? `${whole.name} is ${dtype}, but ${slice.name} is ${sliceDtype}`
      : whole.buffer?.length !== size * slice.buffer.length
        ? `${whole.name} has ${whole.buffer?.length ?? 'no'} elements; expected ${size} x ${slice.buffer.length}, the length of ${slice.name} for each rank`
        : undefined
  if (problem !== undefined) throw tsrError('ERR_TSR_BUFFER', { operation, problem })
  return dtype
}

/**
 * The rank that a message comes from, or ANY_SOURCE.
 *
 * @throws ERR_TSR_RANK_RANGE, ERR_TSR_ARGUMENT
 */
export function checkSource(
  operation: string,
  group: { readonly name: string; readonly size: number },
  from: Source,
): number {
  if (from !== 'any' && from !== null) {
    checkRoot(operation, group, from)
    return from
  }
  if (group.size === 1) {
    const expected = 'a rank: the group has no other'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'from', value: "'any'", expected })
  }
  return ANY_SOURCE
}

/** @throws ERR_TSR_RANK_RANGE */
export function checkRoot(
  operation: string,
  { name, size }: { readonly name: string; readonly size: number },
  peer: number,
): void {
  if (!Number.isInteger(peer) || peer < 0 || peer >= size) {
    throw tsrError('ERR_TSR_RANK_RANGE', { operation, peer, group: name, size })
  }
}

/** @throws ERR_TSR_ARGUMENT */
export function checkTag(tag: number): number {
  return checkNumber(
    'tag',
    tag,
    Number.isInteger(tag) && tag >= 0 && tag <= LARGEST_TAG,
    'an integer from 0 to 2^31 - 1',
  )
}

/** @throws ERR_TSR_ARGUMENT */
export function checkTimeout(timeout: number): number {
  return checkNumber(
    'timeout',
    timeout,
    typeof timeout === 'number' && timeout > 0,
    'milliseconds above 0',
  )
}

/** What of these options a wait takes, complete. @throws ERR_TSR_ARGUMENT */
export function waitOptions(
  { timeout, signal }: JoinOptions,
  usual: number,
): { readonly timeout: number; readonly signal?: AbortSignal } {
  return { timeout: checkTimeout(timeout ?? usual), ...(signal && { signal }) }
}

/** The algorithm that a call asks for. @throws ERR_TSR_ARGUMENT */
export function checkAlgorithm(
  operation: OperationName,
  options: CollectiveOptions | undefined,
): AlgorithmName {
  const algorithm = options?.algorithm ?? 'auto'
  const known = algorithmsOf(operation)
  if (algorithm !== 'auto' && !known.includes(algorithm)) {
    const expected = `one of ${known.join(', ')} for ${operation}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'algorithm', value: algorithm, expected })
  }
  return algorithm
}

function checkNumber(name: string, value: number, isValid: boolean, expected: string): number {
  if (!isValid) throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected })
  return value
}
