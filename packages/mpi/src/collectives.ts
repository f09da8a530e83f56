import { monotonicNow, tsrError } from '@tsrun/core'
import {
  arithmeticOf,
  dtypes,
  isCollective,
  reducing,
  until,
  type Channel,
  type GroupFacts,
  type Operation,
  type RunningOperation,
  type Steps,
  type TransportCollectives,
} from '@tsrun/distributed/transport'
import { duplicateWorld, type Communicators } from './communicators.ts'
import { low, type Mpi } from './libmpi.ts'
import { movedType, reductionHandles } from './abi.ts'

interface Request {
  readonly running: RunningOperation
  readonly operation: Operation
  /** Heap offset of the MPI_Request. */
  readonly at: number
  done: boolean
  error: Error | undefined
}

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

export function mpiCollectives(mpi: Mpi, communicators: Communicators): MpiCollectives {
  const { integers } = mpi
  const groups = new Map<number, MpiGroup>()
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
  const { name, algorithm, reduction, dtype, count, table, deterministic, isReserved } = operation
  if (!isCollective(operation) || algorithm !== 'auto') return false
  // Leave reserved, deterministic and uneven collectives to the engine. libmpi needs the same order
  // of calls on all ranks, which reserved collectives lack. libmpi does not combine in rank order, as
  // deterministic collectives require. Uneven collectives would need other functions, such as
  // MPI_Iallgatherv.
  if (isReserved || deterministic || table !== 0) return false
  if (ranks.length === 1 || name === 'monitoredBarrier' || count > MOST) return false
  return !reducing.has(name) || reductionHandles(abi.handles, reduction, dtype) !== undefined
}

/** Gives an in-place reduce-scatter a separate output, which libmpi requires. */
function apart(channel: Channel, operation: Operation): Operation {
  const { name, input, output, count, dtype } = operation
  const slice = count * dtypes[dtype].bytes
  const whole = channel.size * slice
  const isInside = output >= input && output < input + whole
  if (name !== 'reduceScatter' || !isInside) return operation
  return { ...operation, output: channel.scratch(slice) }
}

/** Starts a collective. libmpi writes its request to the address `request`. */
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
  const part = [count, movedType(handles, dtype)] as const
  const end = [communicator, request] as const
  const ownAt = rank * count * dtypes[dtype].bytes
  // Pass MPI_IN_PLACE instead of a buffer that is this rank's slice of the other buffer.
  const sent = input === output + ownAt ? inPlace : from
  const received = output === input + ownAt ? inPlace : to
  const reduced = [count, ...(reductionHandles(handles, reduction, dtype) ?? [])]
  switch (name) {
    case 'broadcast':
      mpi.call('Ibcast', from, ...part, root, ...end)
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
      mpi.call('Iallgather', sent, ...part, to, ...part, ...end)
      return
    case 'gather': {
      const [given, taken] = isRoot ? [sent, to] : [from, 0]
      mpi.call('Igather', given, ...part, taken, ...part, root, ...end)
      return
    }
    case 'scatter': {
      const [given, taken] = isRoot ? [from, received] : [0, to]
      mpi.call('Iscatter', given, ...part, taken, ...part, root, ...end)
      return
    }
    case 'allToAll':
      mpi.call('Ialltoall', from, ...part, to, ...part, ...end)
      return
    case 'barrier':
      mpi.call('Ibarrier', ...end)
      return
    case 'allGatherV':
    case 'allToAllV':
    case 'monitoredBarrier':
    case 'send':
    case 'recv':
    default:
      throw tsrError('ERR_TSR_INTERNAL', { what: `libmpi is asked for ${name}` })
  }
}

/** Returns where this rank gets the result of a reduction; undefined if it gets none. */
function resultOf(
  channel: Channel,
  { name, input, output, count, dtype, peer: root }: Operation,
): { readonly at: number; readonly bytes: number } | undefined {
  if (!reducing.has(name) || (name === 'reduce' && channel.rank !== root)) return undefined
  const at = name === 'reduceScatter' ? output : input
  return { at, bytes: count * dtypes[dtype].bytes }
}
