import {
  argumentError,
  choice,
  count,
  flag,
  positive,
  refuseUnknown,
  tsrError,
  type TsrError,
} from '@tsrun/core'
import { algorithmsOf } from '../../algorithms/select.ts'
import {
  dtypeNames,
  dtypeOf,
  dtypes,
  dtypesOf,
  type AnyTypedArray,
  type DType,
} from '../../dtype.ts'
import { ANY_SOURCE, type AlgorithmName, type OperationName } from '../../operation.ts'
import type { JoinOptions, Source } from '../../process-group.ts'
import type {
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  ReduceOptions,
} from '../../call-options.ts'
import { reductionCodes, reductionsOf, type ReduceOp } from '../../reduction.ts'

/*
 * Checks the arguments of calls. Every call runs the checks, so an omitted option must cost
 * nothing.
 */

/** The properties of a group that the checks need. */
export interface Member {
  readonly name: string
  readonly rank: number
  readonly size: number
}

/** A buffer and its name in error messages. */
export interface Named {
  readonly name: string
  readonly buffer: AnyTypedArray | null
}

type AnyOptions = MessageOptions & ReduceOptions

const optionNames = Object.keys({
  algorithm: true,
  deterministic: true,
  dtype: true,
  label: true,
  op: true,
  signal: true,
  tag: true,
  timeout: true,
} satisfies Record<keyof AnyOptions, true>)
const knownNames = new Set(optionNames)

const dtypeRule = choice(...dtypeNames)
const tagRule = count({ to: 2 ** 31 - 1 })
const timeoutRule = positive('milliseconds above 0')

/** Rejects unknown options. @throws ERR_TSR_ARGUMENT */
export function checkOptionNames(options: CallOptions): void {
  for (const name in options) if (!knownNames.has(name)) refuseUnknown(options, optionNames)
}

/**
 * Checks a buffer. Errors use its name.
 * @throws ERR_TSR_BUFFER, ERR_TSR_ARGUMENT
 */
export function checkBuffer(
  operation: string,
  name: string,
  buffer: unknown,
  options: CallOptions | undefined,
): DType {
  const wanted = options?.dtype === undefined ? undefined : dtypeRule.check('dtype', options.dtype)
  const dtype = wanted ?? dtypeOf(buffer)
  if (dtype === undefined || (wanted !== undefined && !dtypesOf(buffer).includes(wanted))) {
    throw bufferError(operation, problemOf(name, buffer, wanted))
  }
  if (isDetached(buffer as AnyTypedArray)) {
    throw bufferError(operation, `${name} is detached: its memory was transferred elsewhere`)
  }
  return dtype
}

function problemOf(name: string, buffer: unknown, wanted: DType | undefined): string {
  const kind = Object.prototype.toString.call(buffer).slice(8, -1)
  const candidates = dtypesOf(buffer)
  if (typeof (buffer as { dataSync?: unknown } | undefined)?.dataSync === 'function') {
    return `${name} is a tensor; pass its values, as \`tensor.dataSync()\` gives them, or use allReduceTensor, sendTensor and recvTensor of @tsrun/training`
  }
  if (candidates.length === 0) {
    return `${name} is of the type ${kind}; expected a typed array, as from \`Float32Array.from(values)\`, of ${dtypeNames.join(', ')}`
  }
  if (wanted === undefined) {
    return `${name} is a ${kind}, which may hold ${candidates.join(' or ')}; pass \`dtype\`, or an array from alloc()`
  }
  return `${name} is a ${kind}, but ${wanted} is stored in a ${dtypes[wanted].array.name}`
}

/** Detached arrays have length 0, and Node 20 has no property to distinguish them from empty ones. */
function isDetached({ length, buffer }: AnyTypedArray): boolean {
  if (length > 0) return false
  try {
    return new Uint8Array(buffer).length < 0
  } catch {
    return true
  }
}

/** Checks two buffers, which must have the same dtype. An error names `first` before the other. */
export function checkSameDType(
  operation: string,
  first: Named,
  second: Named,
  options: CallOptions | undefined,
): DType {
  const dtype = checkBuffer(operation, first.name, first.buffer, options)
  const other = checkBuffer(operation, second.name, second.buffer, options)
  if (dtype === other) return dtype
  throw bufferError(operation, `${first.name} is ${dtype}, but ${second.name} is ${other}`)
}

/** Checks that `whole` has room for `size` slices, each as long as `slice`. */
export function checkSlices(
  operation: string,
  size: number,
  whole: Named,
  slice: Named,
  options: CallOptions | undefined,
): DType {
  const dtype = checkSameDType(operation, whole, slice, options)
  const [all, each] = [whole.buffer?.length ?? 0, slice.buffer?.length ?? 0]
  if (all === size * each) return dtype
  const problem = `${whole.name} has ${all} elements; expected ${size} x ${each}, the length of ${slice.name} for each rank`
  throw bufferError(operation, problem)
}

/**
 * Rejects an input and an output that share memory, unless the operation works in place: `part` is
 * then this rank's slice of `whole`.
 *
 * @param place - number of elements of `whole` before that slice; undefined if the buffers must not
 * overlap
 */
export function checkOverlap(
  operation: string,
  whole: AnyTypedArray,
  part: AnyTypedArray,
  place: number | undefined,
): void {
  const begin = Math.max(whole.byteOffset, part.byteOffset)
  const end = Math.min(whole.byteOffset + whole.byteLength, part.byteOffset + part.byteLength)
  const isInPlace =
    place !== undefined && part.byteOffset === whole.byteOffset + place * part.BYTES_PER_ELEMENT
  // Compare the buffers last, because most ranges do not overlap.
  if (begin >= end || isInPlace || whole.buffer !== part.buffer) return
  const where =
    place === undefined ? 'it cannot be done in place' : `in place only from element ${place} on`
  throw bufferError(operation, `input and output overlap; ${where}`)
}

export function bufferError(operation: string, problem: string): TsrError {
  return tsrError('ERR_TSR_BUFFER', { operation, problem })
}

export function detachedError(operation: string): TsrError {
  return bufferError(operation, 'a buffer was detached while the operation was under way')
}

/**  @throws ERR_TSR_RANK_RANGE */
export function checkRank(
  operation: string,
  { name, size }: { readonly name: string; readonly size: number },
  peer: number,
): void {
  if (Number.isInteger(peer) && peer >= 0 && peer < size) return
  throw tsrError('ERR_TSR_RANK_RANGE', { operation, peer, group: name, size })
}

/** Returns the source of a message, or ANY_SOURCE. @throws ERR_TSR_RANK_RANGE, ERR_TSR_ARGUMENT */
export function checkSource(operation: string, group: Member, from: Source): number {
  if (from !== 'any' && from !== null) {
    checkRank(operation, group, from)
    return from
  }
  if (group.size > 1) return ANY_SOURCE
  throw argumentError('from', "'any'", 'a rank: the group has no other')
}

/** Returns the tag, by default 0. @throws ERR_TSR_ARGUMENT */
export function checkTag(tag: number | undefined): number {
  return tag === undefined ? 0 : tagRule.check('tag', tag)
}

/** Returns the time-out of a call in milliseconds, by default `usual`. @throws ERR_TSR_ARGUMENT */
export function checkTimeout(timeout: number | undefined, usual: number): number {
  return timeout === undefined ? usual : timeoutRule.check('timeout', timeout)
}

/** Fills in the default time-out of a wait. @throws ERR_TSR_ARGUMENT */
export function waitOptions({ timeout, signal }: JoinOptions, usual: number) {
  return { timeout: checkTimeout(timeout, usual), signal }
}

/**  @throws ERR_TSR_ARGUMENT */
export function checkAlgorithm(
  operation: OperationName,
  options: CollectiveOptions | undefined,
): AlgorithmName {
  const algorithm = options?.algorithm
  if (algorithm === undefined || algorithm === 'auto') return 'auto'
  const known = algorithmsOf(operation)
  if (known.includes(algorithm)) return algorithm
  throw argumentError('algorithm', algorithm, `one of ${known.join(', ')} for ${operation}`)
}

/** The reduction of a call, with defaults filled in. */
export interface CheckedReduction {
  readonly name: ReduceOp
  readonly deterministic: boolean
}

const plainSum: CheckedReduction = { name: 'sum', deterministic: false }

const deterministicRule = flag.default(false)
const opRule = choice(...(Object.keys(reductionCodes) as ReduceOp[])).default('sum')

/** @throws ERR_TSR_ARGUMENT, ERR_TSR_REDUCTION */
export function checkReduction(
  operation: string,
  dtype: DType,
  options: ReduceOptions | undefined,
): CheckedReduction {
  // Without options, the reduction is a sum, which every dtype supports.
  if (options === undefined) return plainSum
  const deterministic = deterministicRule.check('deterministic', options.deterministic)
  const name = opRule.check('op', options.op)
  const allowed = reductionsOf(dtype)
  if (allowed.includes(name)) return { name, deterministic }
  const facts = { operation, reduction: name, dtype, allowed: allowed.join(', ') }
  throw tsrError('ERR_TSR_REDUCTION', facts)
}

type Given = Named & { readonly buffer: AnyTypedArray }

/**
 * Checks a collective in which `whole` consists of one slice per rank, and `slice` is this rank's slice.
 *
 * @param whole - undefined on a rank that has only its slice
 */
export function checkRooted(
  operation: string,
  { rank, size }: Member,
  whole: Named | undefined,
  slice: Given,
  options: CollectiveOptions | undefined,
): DType {
  if (whole === undefined) return checkBuffer(operation, slice.name, slice.buffer, options)
  const dtype = checkSlices(operation, size, whole, slice, options)
  checkOverlap(operation, whole.buffer!, slice.buffer, rank * slice.buffer.length)
  return dtype
}

/**
 * Checks a collective in which `whole` consists of one slice per rank with `counts` elements each,
 * and `slice` is this rank's slice.
 */
export function checkUneven(
  operation: string,
  { rank, size }: Member,
  whole: Given,
  slice: Given,
  counts: readonly number[],
  options: CollectiveOptions | undefined,
): DType {
  const dtype = checkSameDType(operation, whole, slice, options)
  checkCounts(operation, size, 'counts', counts, whole)
  const { length } = slice.buffer
  if (length !== counts[rank]) {
    const problem = `${slice.name} has ${length} elements; expected ${counts[rank]}, counts[${rank}]`
    throw bufferError(operation, problem)
  }
  checkOverlap(operation, whole.buffer, slice.buffer, sum(counts.slice(0, rank)))
  return dtype
}

/** Checks that `whole` consists of `size` slices of the given lengths. */
export function checkCounts(
  operation: string,
  size: number,
  name: string,
  counts: readonly number[],
  whole: Given,
): void {
  if (!isList(counts) || counts.length !== size) {
    const given = isList(counts) ? `has ${counts.length} entries` : 'is not a list'
    throw bufferError(operation, `${name} ${given}; expected ${size}, one for each rank`)
  }
  const odd = counts.findIndex((length) => !Number.isSafeInteger(length) || length < 0)
  if (odd >= 0) {
    const problem = `${name}[${odd}] is ${String(counts[odd])}; expected an integer >= 0`
    throw bufferError(operation, problem)
  }
  const { length } = whole.buffer
  const expected = sum(counts)
  if (length === expected) return
  const problem = `${whole.name} has ${length} elements; expected ${expected}, the sum of ${name}`
  throw bufferError(operation, problem)
}

/** Whether the argument is a list. `Array.isArray` would narrow a readonly array to `any[]`. */
export function isList(value: readonly unknown[]): boolean {
  return Array.isArray(value)
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => a + b, 0)
}
