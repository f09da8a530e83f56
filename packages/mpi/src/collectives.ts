import { monotonicNow, tsrError } from '@tsrun/core'
import {
  arithmeticOf,
  dtypes,
  isCollective,
  reducing,
  slicesOf,
  until,
  type Channel,
  type GroupFacts,
  type Operation,
  type RunningOperation,
  type Slice,
  type Steps,
  type TransportCollectives,
} from '@tsrun/distributed/transport'
import { duplicateWorld, type Communicators } from './communicators.ts'
import { low, type Mpi } from './libmpi.ts'
import { movedType, numberType, reductionHandle } from './abi.ts'

/** A collective that libmpi runs, or will run once the communicator of its group exists. */
interface Request {
  readonly running: RunningOperation
  readonly operation: Operation
  /** Heap offset of the MPI_Request. */
  readonly at: number
  done: boolean
  error: Error | undefined
}

/** The communicator of a group, and the requests that wait for it. */
interface MpiGroup {
  communicator: number | undefined
  /** Requests that wait for the communicator, in call order, which is the same on all ranks. */
  readonly early: Request[]
  isOpening: boolean
}

/** Largest number of requests to test in one call of `progress`. */
const ASKED = 32
/** Largest number of elements in one call of libmpi. */
const MOST = 2 ** 31 - 1

export interface MpiCollectives extends TransportCollectives {
  readonly isBusy: boolean
  /** Counts pending operations as abandoned, because the engine ends without waiting for them. */
  abandon(): void
}

/** Runs collectives in libmpi. */
export function mpiCollectives(mpi: Mpi, communicators: Communicators): MpiCollectives {
  const { integers } = mpi
  const groups = new Map<number, MpiGroup>()
  /** Requests that libmpi is running. */
  let active: Request[] = []
  /** Requests that failed before libmpi accepted them. */
  const refused: Request[] = []
  let next = 0

  const groupOf = (id: number): MpiGroup => {
    const group = groups.get(id) ?? { communicator: undefined, early: [], isOpening: false }
    groups.set(id, group)
    return group
  }
  groupOf(0).communicator = duplicateWorld(mpi)

  const start = (request: Request, communicator: number) => {
    const { running: channel, operation, at } = request
    try {
      startCollective(mpi, channel, operation, communicator, mpi.address(at))
      active.push(request)
      request.running.started = monotonicNow()
    } catch (error) {
      request.done = true
      request.error = error as Error
      refused.push(request)
    }
  }

  /**
   * Creates the communicator of a group in the group's first operation. Operations that start
   * meanwhile wait.
   */
  const startEarly = function* (request: Request, group: MpiGroup): Steps {
    group.early.push(request)
    if (group.isOpening) return
    group.isOpening = true
    const communicator = yield* communicators.make(request.running)
    group.communicator = communicator
    for (const early of group.early.splice(0)) {
      if (early.running.state === 'running') start(early, communicator)
    }
  }

  const hasEnded = (request: Request) => {
    try {
      return mpi.isDone(request.at)
    } catch (error) {
      request.error = error as Error
      return true
    }
  }

  return {
    get isBusy() {
      return active.length > 0
    },
    take: (operation, group) =>
      canRun(mpi, operation, group) ? { ...operation, algorithm: 'mpi' } : undefined,
    *run(running) {
      const group = groupOf(running.group.id)
      const { operation } = running
      const handed = apart(running, operation)
      const at = running.scratch(8)
      const request: Request = { running, operation: handed, at, done: false, error: undefined }
      if (group.communicator !== undefined) start(request, group.communicator)
      else yield* startEarly(request, group)
      yield* until(request)
      if (request.error !== undefined) throw request.error
      const result = resultOf(running, operation)
      if (result === undefined) return
      if (handed !== operation) running.kernels.copy(result.at, handed.output, result.bytes)
      arithmeticOf(running, operation).finish(result.at, result.bytes)
    },
    progress: () => {
      const hasMoved = communicators.progress()
      const ended = refused.splice(0)
      const asked = Math.min(active.length, ASKED)
      for (let i = 0; i < asked; i++) {
        next = (next + 1) % active.length
        const request = active[next]!
        if (request.running.state !== 'running') {
          // libmpi never releases the buffers of a failed operation.
          integers[low.abandoned / 4]! += 1
          request.done = true
        } else if (hasEnded(request)) {
          request.done = true
          ended.push(request)
        }
      }
      if (asked > 0) active = active.filter(({ done }) => !done)
      for (const request of ended) request.running.resume(request)
      return hasMoved || ended.length > 0
    },
    abandon: () => {
      integers[low.abandoned / 4]! += active.length
    },
    removeGroup: (id) => {
      const group = groups.get(id)
      groups.delete(id)
      const isHeld = active.some(({ running }) => running.group.id === id)
      if (group?.communicator !== undefined && !isHeld) communicators.free(group.communicator)
    },
  }
}

function canRun({ abi }: Mpi, operation: Operation, { ranks }: GroupFacts) {
  const { name, algorithm, reduction, dtype, count, deterministic, isReserved } = operation
  if (!isCollective(operation) || algorithm !== 'auto') return false
  // Leave reserved and deterministic collectives to the engine. libmpi needs the same order of
  // calls on all ranks, which reserved collectives lack. It does not combine in rank order, which
  // deterministic collectives require.
  if (isReserved || deterministic) return false
  if (ranks.length === 1 || name === 'monitoredBarrier' || count > MOST) return false
  return !reducing.has(name) || reductionHandle(abi.handles, reduction, dtype) !== undefined
}

/** Separates input and output of a reduce-scatter in place, which libmpi does not support. */
function apart(channel: Channel, operation: Operation): Operation {
  const { name, input, output, count, dtype } = operation
  const slice = count * dtypes[dtype].bytes
  const whole = channel.size * slice
  const isInside = output >= input && output < input + whole
  if (name !== 'reduceScatter' || !isInside) return operation
  return { ...operation, output: channel.scratch(slice) }
}

/**
 * Starts a collective. libmpi writes the request to the address `request`.
 * @throws ERR_TSR_MPI
 */
function startCollective(
  mpi: Mpi,
  channel: Channel,
  operation: Operation,
  communicator: number,
  request: number,
) {
  const { name, input, output, count, peer: root, reduction, dtype } = operation
  const { handles, inPlace } = mpi.abi
  const { rank } = channel
  const isRoot = rank === root
  const [from, to] = [mpi.address(input), mpi.address(output)]
  const type = movedType(handles, dtype)
  const end = [communicator, request] as const
  const slices = slicesOf(channel, operation)
  const places = placesOf(mpi, channel, operation, slices)
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
      const coming = slicesOf(channel, operation, channel.size)
      const comingPlaces = placesOf(mpi, channel, operation, coming)
      mpi.call(`Ialltoall${v}`, from, ...places, type, to, ...comingPlaces, type, ...end)
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
function placesOf(
  mpi: Mpi,
  channel: Channel,
  operation: Operation,
  slices: readonly Slice[],
): number[] {
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
function resultOf(
  channel: Channel,
  { name, input, output, count, dtype, peer: root }: Operation,
): { readonly at: number; readonly bytes: number } | undefined {
  if (!reducing.has(name) || (name === 'reduce' && channel.rank !== root)) return undefined
  const at = name === 'reduceScatter' ? output : input
  return { at, bytes: count * dtypes[dtype].bytes }
}
