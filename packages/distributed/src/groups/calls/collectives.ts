import type { AnyTypedArray } from '../../dtype.ts'
import type {
  CollectiveOptions,
  MonitoredBarrierOptions,
  ReduceOptions,
} from '../../process-group.ts'
import { checkAlgorithm, checkBuffer, checkOverlap, checkRoot, checkSlices } from './arguments.ts'
import { checkReduction } from './reductions.ts'
import type { Call } from './operations.ts'

/*
 * Collectives with buffers of the same size on all ranks: each checks its arguments and makes the
 * call for the engine.
 */

/** The group that a call is made on, from this rank's side. */
export interface Member {
  readonly name: string
  readonly rank: number
  readonly size: number
}

type Buffer = AnyTypedArray

export function broadcastCall(
  member: Member,
  buffer: Buffer,
  root: number,
  options?: CollectiveOptions,
): Call {
  checkRoot('broadcast', member, root)
  return {
    name: 'broadcast',
    dtype: checkBuffer('broadcast', 'buffer', buffer, options),
    count: buffer.length,
    input: member.rank === root ? buffer : undefined,
    output: buffer,
    peer: root,
    algorithm: checkAlgorithm('broadcast', options),
    options,
  }
}

export function reductionCall(
  name: 'reduce' | 'allReduce',
  buffer: Buffer,
  peer: number,
  options?: ReduceOptions,
): Call {
  const dtype = checkBuffer(name, 'buffer', buffer, options)
  return {
    name,
    dtype,
    count: buffer.length,
    input: buffer,
    output: buffer,
    peer,
    reduction: checkReduction(name, dtype, options),
    algorithm: checkAlgorithm(name, options),
    options,
  }
}

export function reduceScatterCall(
  { rank, size }: Member,
  output: Buffer,
  input: Buffer,
  options?: ReduceOptions,
): Call {
  const name = 'reduceScatter'
  const dtype = checkSlices(
    name,
    size,
    { name: 'input', buffer: input },
    { name: 'output', buffer: output },
    options,
  )
  checkOverlap(name, input, output, rank * output.length)
  return {
    name,
    dtype,
    count: output.length,
    input,
    output,
    reduction: checkReduction(name, dtype, options),
    algorithm: checkAlgorithm(name, options),
    options,
  }
}

export function allGatherCall(
  { rank, size }: Member,
  output: Buffer,
  input: Buffer,
  options?: CollectiveOptions,
): Call {
  const name = 'allGather'
  const dtype = checkSlices(
    name,
    size,
    { name: 'output', buffer: output },
    { name: 'input', buffer: input },
    options,
  )
  checkOverlap(name, output, input, rank * input.length)
  const algorithm = checkAlgorithm(name, options)
  return { name, dtype, count: input.length, input, output, algorithm, options }
}

export function gatherCall(
  member: Member,
  output: Buffer | null,
  input: Buffer,
  root: number,
  options?: CollectiveOptions,
): Call {
  const name = 'gather'
  checkRoot(name, member, root)
  const own = { name: 'input', buffer: input }
  const isRoot = member.rank === root
  const dtype = isRoot
    ? checkSlices(name, member.size, { name: 'output', buffer: output }, own, options)
    : checkBuffer(name, 'input', input, options)
  const whole = isRoot ? (output ?? undefined) : undefined
  if (whole !== undefined) checkOverlap(name, whole, input, root * input.length)
  const algorithm = checkAlgorithm(name, options)
  return { name, dtype, count: input.length, input, output: whole, peer: root, algorithm, options }
}

export function scatterCall(
  member: Member,
  output: Buffer,
  input: Buffer | null,
  root: number,
  options?: CollectiveOptions,
): Call {
  const name = 'scatter'
  checkRoot(name, member, root)
  const own = { name: 'output', buffer: output }
  const isRoot = member.rank === root
  const dtype = isRoot
    ? checkSlices(name, member.size, { name: 'input', buffer: input }, own, options)
    : checkBuffer(name, 'output', output, options)
  const whole = isRoot ? (input ?? undefined) : undefined
  if (whole !== undefined) checkOverlap(name, whole, output, root * output.length)
  const algorithm = checkAlgorithm(name, options)
  return { name, dtype, count: output.length, input: whole, output, peer: root, algorithm, options }
}

export function allToAllCall(
  { size }: Member,
  output: Buffer,
  input: Buffer,
  options?: CollectiveOptions,
): Call {
  const name = 'allToAll'
  const dtype = checkBuffer(name, 'input', input, options)
  const count = Math.floor(input.length / size)
  checkSlices(
    name,
    size,
    { name: 'input', buffer: input },
    { name: 'a slice', buffer: input.subarray(0, count) },
    options,
  )
  checkSlices(
    name,
    size,
    { name: 'output', buffer: output },
    { name: 'a slice of input', buffer: input.subarray(0, count) },
    options,
  )
  checkOverlap(name, output, input, 0)
  return { name, dtype, count, input, output, algorithm: checkAlgorithm(name, options), options }
}

export function barrierCall(options?: CollectiveOptions): Call {
  const algorithm = checkAlgorithm('barrier', options)
  return { ...noBuffers, name: 'barrier', algorithm, options }
}

export function monitoredBarrierCall({ rank }: Member, options?: MonitoredBarrierOptions): Call {
  return {
    ...noBuffers,
    name: 'monitoredBarrier',
    peer: options?.waitAllRanks === true ? 1 : 0,
    // so that rank 0, which may come last, ends it first and says who is missing
    patience: rank === 0 ? 1 : 2,
    options,
  }
}

const noBuffers = { dtype: 'float32', count: 0, input: undefined, output: undefined } as const
