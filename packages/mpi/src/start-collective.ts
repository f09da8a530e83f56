import { tsrError } from '@tsrun/core'
import {
  dtypes,
  exchangedSlicesOf,
  reducing,
  slicesOf,
  type Channel,
  type Operation,
  type Slice,
} from '@tsrun/distributed/transport'
import type { LibMpi } from './libmpi.ts'
import type { NativeMemory } from './memory.ts'
import { movedType, numberType, reductionHandle } from './abi.ts'

/** A collective, with all arguments of its libmpi call. */
export interface CollectiveCall {
  readonly mpi: LibMpi
  readonly native: NativeMemory
  readonly channel: Channel
  readonly operation: Operation
  readonly communicator: number
}

/**
 * Starts a collective. libmpi writes the request to the address `request`.
 * @throws ERR_TSR_MPI
 */
export function startCollective(collective: CollectiveCall, request: number): void {
  const { mpi, native, channel, operation, communicator } = collective
  const { name, input, output, count, peer: root } = operation
  const { handles, inPlace } = mpi.abi
  const { rank } = channel
  const isRoot = rank === root
  const [from, to] = [native.address(input), native.address(output)]
  const type = movedType(handles, operation.dtype)
  const end = [communicator, request] as const
  /** Whether the slice of the root, or of every rank, is already in place. */
  const own = slicesOf(channel, operation)[rank]!
  const [inOutput, inInput] = [input === output + own.at, output === input + own.at]
  switch (name) {
    case 'broadcast':
      mpi.call('Ibcast', from, count, type, root, ...end)
      return
    case 'reduce':
    case 'allReduce':
    case 'allReduceCoalesced':
    case 'reduceScatter':
      startReduction(collective, request)
      return
    case 'allGather': {
      const sent = inOutput ? inPlace : from
      mpi.call('Iallgather', sent, count, type, to, count, type, ...end)
      return
    }
    case 'gather': {
      const sent = isRoot && inOutput ? inPlace : from
      mpi.call('Igather', sent, count, type, isRoot ? to : 0, count, type, root, ...end)
      return
    }
    case 'scatter': {
      const received = isRoot && inInput ? inPlace : to
      mpi.call('Iscatter', isRoot ? from : 0, count, type, received, count, type, root, ...end)
      return
    }
    case 'allToAll':
      mpi.call('Ialltoall', from, count, type, to, count, type, ...end)
      return
    case 'allGatherV': {
      const places = placesOf(collective, slicesOf(channel, operation))
      const sent = inOutput ? inPlace : from
      mpi.call('Iallgatherv', sent, own.count!, type, to, ...places, type, ...end)
      return
    }
    case 'gatherV': {
      const places = placesOf(collective, slicesOf(channel, operation))
      const sent = isRoot && inOutput ? inPlace : from
      mpi.call('Igatherv', sent, own.count!, type, isRoot ? to : 0, ...places, type, root, ...end)
      return
    }
    case 'scatterV': {
      const places = placesOf(collective, slicesOf(channel, operation))
      const received = isRoot && inInput ? inPlace : to
      const given = isRoot ? from : 0
      mpi.call('Iscatterv', given, ...places, type, received, own.count!, type, root, ...end)
      return
    }
    case 'allToAllV': {
      const { sent, coming } = exchangedSlicesOf(channel, operation)
      const [outgoing, incoming] = [placesOf(collective, sent), placesOf(collective, coming)]
      mpi.call('Ialltoallv', from, ...outgoing, type, to, ...incoming, type, ...end)
      return
    }
    case 'barrier':
      mpi.call('Ibarrier', ...end)
      return
    case 'send':
    case 'recv':
    case 'monitoredBarrier':
    default:
      throw tsrError('ERR_TSR_INTERNAL', { what: `libmpi is asked for ${name}` })
  }
}

function startReduction(
  { mpi, native, channel, operation, communicator }: CollectiveCall,
  request: number,
): void {
  const { name, input, output, count, peer: root, reduction, dtype } = operation
  const { handles, inPlace } = mpi.abi
  const from = native.address(input)
  const op = reductionHandle(handles, reduction, dtype)!
  const what = [count, numberType(handles, dtype), op] as const
  if (name === 'reduce') {
    const isRoot = channel.rank === root
    const [sent, received] = isRoot ? [inPlace, from] : [from, 0]
    mpi.call('Ireduce', sent, received, ...what, root, communicator, request)
  } else if (name === 'reduceScatter') {
    const received = native.address(output)
    mpi.call('Ireduce_scatter_block', from, received, ...what, communicator, request)
  } else {
    mpi.call('Iallreduce', inPlace, from, ...what, communicator, request)
  }
}

/** Returns the addresses of the counts and displacements of slices, which are arrays of int. */
function placesOf(
  { native, channel, operation }: CollectiveCall,
  slices: readonly Slice[],
): [number, number] {
  const element = dtypes[operation.dtype].bytes
  const at = channel.scratch(8 * slices.length)
  for (const [i, slice] of slices.entries()) {
    const first = slice.at / element
    if (first > 0x7fff_ffff || slice.bytes / element > 0x7fff_ffff) {
      const problem = 'libmpi counts no more than 2^31 - 1 elements'
      throw tsrError('ERR_TSR_BUFFER', { operation: operation.name, problem })
    }
    native.integers[at / 4 + i] = slice.bytes / element
    native.integers[at / 4 + slices.length + i] = first
  }
  return [native.address(at), native.address(at + 4 * slices.length)]
}

/** Returns the place of the result on this rank. Returns undefined without a reduction. */
export function resultOf(
  channel: Channel,
  { name, input, output, count, dtype, peer: root }: Operation,
): { readonly at: number; readonly bytes: number } | undefined {
  if (!reducing.has(name) || (name === 'reduce' && channel.rank !== root)) return undefined
  const at = name === 'reduceScatter' ? output : input
  return { at, bytes: count * dtypes[dtype].bytes }
}
