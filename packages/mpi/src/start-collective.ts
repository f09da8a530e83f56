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
  const { name, input, output, count, peer: root, reduction, dtype } = operation
  const { handles, inPlace } = mpi.abi
  const { rank } = channel
  const isRoot = rank === root
  const [from, to] = [mpi.address(input), mpi.address(output)]
  const type = movedType(handles, dtype)
  const end = [communicator, request] as const
  const slices = slicesOf(channel, operation)
  const places = placesOf(collective, slices)
  const own = slices[rank]!
  const ownCount = own.count ?? count
  /** The suffix of the MPI calls for slices of different lengths. */
  const v = operation.table === 0 ? '' : 'v'
  /** The input or the output, unless the slice of the root, or of every rank, is already in place. */
  const sent = input === output + own.at ? inPlace : from
  const received = output === input + own.at ? inPlace : to
  /** The arguments of a reduction, whose handle is known by `canRun`. */
  const reduced = [
    count,
    numberType(handles, dtype),
    reductionHandle(handles, reduction, dtype)!,
  ] as const
  switch (name) {
    case 'broadcast':
      mpi.call('Ibcast', from, count, type, root, ...end)
      return
    case 'reduce':
      mpi.call('Ireduce', isRoot ? inPlace : from, isRoot ? from : 0, ...reduced, root, ...end)
      return
    case 'allReduce':
    case 'allReduceCoalesced':
      mpi.call('Iallreduce', inPlace, from, ...reduced, ...end)
      return
    case 'reduceScatter':
      mpi.call('Ireduce_scatter_block', from, to, ...reduced, ...end)
      return
    case 'allGather':
    case 'allGatherV':
      mpi.call(`Iallgather${v}`, sent, ownCount, type, to, ...places, type, ...end)
      return
    case 'gather':
    case 'gatherV': {
      const [given, taken] = isRoot ? [sent, to] : [from, 0]
      mpi.call(`Igather${v}`, given, ownCount, type, taken, ...places, type, root, ...end)
      return
    }
    case 'scatter':
    case 'scatterV': {
      const [given, taken] = isRoot ? [from, received] : [0, to]
      mpi.call(`Iscatter${v}`, given, ...places, type, taken, ownCount, type, root, ...end)
      return
    }
    case 'allToAll':
    case 'allToAllV': {
      const coming = placesOf(collective, exchangedSlicesOf(channel, operation).coming)
      mpi.call(`Ialltoall${v}`, from, ...places, type, to, ...coming, type, ...end)
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
