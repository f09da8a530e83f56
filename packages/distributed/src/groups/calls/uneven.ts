import { tsrError } from '@tsrun/core'
import type { AnyTypedArray, DType } from '../../dtype.ts'
import type { OperationName } from '../../operation.ts'
import type { CollectiveOptions } from '../../process-group.ts'
import { checkAlgorithm, checkBuffer, checkOverlap, checkRoot } from './arguments.ts'
import type { Member } from './collectives.ts'
import type { Call } from './operations.ts'

/*
 * Collectives with slices of different lengths: the engine gets the lengths in a table.
 */

type Buffer = AnyTypedArray

interface Named {
  readonly name: string
  readonly buffer: Buffer | null
}

/** Checks that `whole` is made of slices of these lengths. */
function checkCounts(
  operation: string,
  { size }: Member,
  counts: { readonly name: string; readonly list: readonly number[] | null },
  { name, buffer }: Named,
): readonly number[] {
  const { list } = counts
  const refuse = (problem: string): Error => tsrError('ERR_TSR_BUFFER', { operation, problem })
  if (!Array.isArray(list) || list.length !== size) {
    const given = Array.isArray(list) ? `has ${list.length} entries` : 'is no list'
    throw refuse(`${counts.name} ${given}; expected ${size}, one for each rank`)
  }
  const numbers = list as readonly number[]
  const odd = numbers.findIndex((count) => !Number.isSafeInteger(count) || count < 0)
  if (odd >= 0) {
    throw refuse(`${counts.name}[${odd}] is ${String(numbers[odd])}; expected an integer >= 0`)
  }
  const sum = numbers.reduce((a, b) => a + b, 0)
  if (buffer?.length !== sum) {
    throw refuse(
      `${name} has ${buffer?.length ?? 'no'} elements; expected ${sum}, the sum of ${counts.name}`,
    )
  }
  return numbers
}

/** Checks that this rank's slice has the length that the list says. */
function checkOwn(
  operation: string,
  { rank }: Member,
  counts: readonly number[],
  { name, buffer }: { readonly name: string; readonly buffer: Buffer },
): void {
  if (buffer.length === counts[rank]) return
  const problem = `${name} has ${buffer.length} elements; expected ${counts[rank]}, counts[${rank}]`
  throw tsrError('ERR_TSR_BUFFER', { operation, problem })
}

function checkSameDtype(
  operation: string,
  output: Buffer | null,
  input: Buffer | null,
  options: CollectiveOptions | undefined,
): DType {
  const dtype = checkBuffer(operation, 'output', output, options)
  const other = checkBuffer(operation, 'input', input, options)
  if (dtype === other) return dtype
  const problem = `output is ${dtype}, but input is ${other}`
  throw tsrError('ERR_TSR_BUFFER', { operation, problem })
}

/** Elements before a rank's slice. */
function before(counts: readonly number[], rank: number): number {
  return counts.slice(0, rank).reduce((a, b) => a + b, 0)
}

/** A table in which only this rank's entry matters. */
function onlyOwn({ rank, size }: Member, count: number): number[] {
  return Array.from({ length: size }, (_, i) => (i === rank ? count : 0))
}

function callOf(
  name: OperationName,
  dtype: DType,
  table: readonly number[],
  buffers: { readonly input: Buffer | undefined; readonly output: Buffer | undefined },
  options: CollectiveOptions | undefined,
): Call {
  const algorithm = checkAlgorithm(name, options)
  return { name, dtype, count: 0, table, algorithm, options, ...buffers }
}

export function allGatherVCall(
  member: Member,
  output: Buffer,
  input: Buffer,
  list: readonly number[],
  options?: CollectiveOptions,
): Call {
  const name = 'allGatherV'
  const dtype = checkSameDtype(name, output, input, options)
  const whole = { name: 'output', buffer: output }
  const counts = checkCounts(name, member, { name: 'counts', list }, whole)
  checkOwn(name, member, counts, { name: 'input', buffer: input })
  checkOverlap(name, output, input, before(counts, member.rank))
  return callOf(name, dtype, counts, { input, output }, options)
}

export function gatherVCall(
  member: Member,
  output: Buffer | null,
  input: Buffer,
  list: readonly number[] | null,
  root: number,
  options?: CollectiveOptions,
): Call {
  const name = 'gatherV'
  checkRoot(name, member, root)
  if (member.rank !== root) {
    const dtype = checkBuffer(name, 'input', input, options)
    const table = onlyOwn(member, input.length)
    return { ...callOf(name, dtype, table, { input, output: undefined }, options), peer: root }
  }
  const dtype = checkSameDtype(name, output, input, options)
  const whole = { name: 'output', buffer: output }
  const counts = checkCounts(name, member, { name: 'counts', list }, whole)
  checkOwn(name, member, counts, { name: 'input', buffer: input })
  const filled = output ?? undefined
  if (filled !== undefined) checkOverlap(name, filled, input, before(counts, root))
  return { ...callOf(name, dtype, counts, { input, output: filled }, options), peer: root }
}

export function scatterVCall(
  member: Member,
  output: Buffer,
  input: Buffer | null,
  list: readonly number[] | null,
  root: number,
  options?: CollectiveOptions,
): Call {
  const name = 'scatterV'
  checkRoot(name, member, root)
  if (member.rank !== root) {
    const dtype = checkBuffer(name, 'output', output, options)
    const table = onlyOwn(member, output.length)
    return { ...callOf(name, dtype, table, { input: undefined, output }, options), peer: root }
  }
  const dtype = checkSameDtype(name, output, input, options)
  const whole = { name: 'input', buffer: input }
  const counts = checkCounts(name, member, { name: 'counts', list }, whole)
  checkOwn(name, member, counts, { name: 'output', buffer: output })
  const cut = input ?? undefined
  if (cut !== undefined) checkOverlap(name, cut, output, before(counts, root))
  return { ...callOf(name, dtype, counts, { input: cut, output }, options), peer: root }
}

export function allToAllVCall(
  member: Member,
  output: Buffer,
  input: Buffer,
  outputList: readonly number[],
  inputList: readonly number[],
  options?: CollectiveOptions,
): Call {
  const name = 'allToAllV'
  const dtype = checkSameDtype(name, output, input, options)
  const sent = checkCounts(
    name,
    member,
    { name: 'inputCounts', list: inputList },
    { name: 'input', buffer: input },
  )
  const coming = checkCounts(
    name,
    member,
    { name: 'outputCounts', list: outputList },
    { name: 'output', buffer: output },
  )
  const { rank } = member
  if (sent[rank] !== coming[rank]) {
    const problem = `rank ${rank} sends itself inputCounts[${rank}] = ${sent[rank]} elements, but expects outputCounts[${rank}] = ${coming[rank]}`
    throw tsrError('ERR_TSR_BUFFER', { operation: name, problem })
  }
  checkOverlap(name, output, input, undefined)
  return callOf(name, dtype, [...sent, ...coming], { input, output }, options)
}
