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
import type { Mpi } from './memory.ts'
import { movedType, numberType, reductionHandle } from './abi.ts'

/** A collective, with all arguments of its libmpi call. */
export interface CollectiveCall {
  readonly mpi: Mpi
  readonly channel: Channel
  readonly operation: Operation
  readonly communicator: number
}

/**
 * Starts a collective. libmpi writes the request to the address `request`.
 * @throws ERR_TSR_MPI
 */
export function startCollective(collective: CollectiveCall, request: number): void {
  const { mpi, channel, operation, communicator } = collective
  const { name, input, output, count, peer: root } = operation
  const { handles, inPlace } = mpi.abi
  const { rank } = channel
  const isRoot = rank === root
  const [from, to] = [mpi.address(input), mpi.address(output)]
  const type = movedType(handles, operation.dtype)
  const end = [communicator, request] as const
  const slices = slicesOf(channel, operation)
  const own = slices[rank]!
  const ownCount = own.count ?? count
  /** The suffix of the MPI calls for slices of different lengths. */
  const v = operation.table === 0 ? '' : 'v'
  /** Whether the slice of the root, or of every rank, is already in place. */
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
    case 'allGather':
    case 'allGatherV': {
      const sent = inOutput ? inPlace : from
      const places = placesOf(collective, slices)
      mpi.call(`Iallgather${v}`, sent, ownCount, type, to, ...places, type, ...end)
      return
    }
    case 'gather':
    case 'gatherV': {
      const sent = isRoot && inOutput ? inPlace : from
      const places = placesOf(collective, slices)
      const received = isRoot ? to : 0
      mpi.call(`Igather${v}`, sent, ownCount, type, received, ...places, type, root, ...end)
      return
    }
    case 'scatter':
    case 'scatterV': {
      const places = placesOf(collective, slices)
      const received = isRoot && inInput ? inPlace : to
      const given = isRoot ? from : 0
      mpi.call(`Iscatter${v}`, given, ...places, type, received, ownCount, type, root, ...end)
      return
    }
    case 'allToAll':
    case 'allToAllV': {
      const { sent, coming } = exchangedSlicesOf(channel, operation)
      const [outgoing, incoming] = [placesOf(collective, sent), placesOf(collective, coming)]
      mpi.call(`Ialltoall${v}`, from, ...outgoing, type, to, ...incoming, type, ...end)
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
  { mpi, channel, operation, communicator }: CollectiveCall,
  request: number,
): void {
  const { name, input, output, count, peer: root, reduction, dtype } = operation
  const { handles, inPlace } = mpi.abi
  const from = mpi.address(input)
  const op = reductionHandle(handles, reduction, dtype)!
  const what = [count, numberType(handles, dtype), op] as const
  if (name === 'reduce') {
    const isRoot = channel.rank === root
    const [sent, received] = isRoot ? [inPlace, from] : [from, 0]
    mpi.call('Ireduce', sent, received, ...what, root, communicator, request)
  } else if (name === 'reduceScatter') {
    const received = mpi.address(output)
    mpi.call('Ireduce_scatter_block', from, received, ...what, communicator, request)
  } else {
    mpi.call('Iallreduce', inPlace, from, ...what, communicator, request)
  }
}

/**
 * Returns the count of equal slices. For slices of different lengths, returns the addresses of their
 * counts and displacements, which are arrays of int.
 */
function placesOf({ mpi, channel, operation }: CollectiveCall, slices: readonly Slice[]): number[] {
  if (operation.table === 0) return [operation.count]
  const element = dtypes[operation.dtype].bytes
  const at = channel.scratch(8 * slices.length)
  for (const [i, slice] of slices.entries()) {
    const first = slice.at / element
    if (first > 0x7fff_ffff || slice.bytes / element > 0x7fff_ffff) {
      const problem = 'libmpi counts no more than 2^31 - 1 elements'
      throw tsrError('ERR_TSR_BUFFER', { operation: operation.name, problem })
    }
    mpi.integers[at / 4 + i] = slice.bytes / element
    mpi.integers[at / 4 + slices.length + i] = first
  }
  return [mpi.address(at), mpi.address(at + 4 * slices.length)]
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
