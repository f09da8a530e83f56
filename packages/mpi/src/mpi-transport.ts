import { monotonicNow, tsrError } from '@tsrun/core'
import { instantiateKernels, type BlockingTransport, type Heap } from '@tsrun/distributed/transport'
import {
  addressOf,
  closeNative,
  createBell,
  pollFds,
  POLLIN,
  silenceBell,
  yieldCore,
} from '@tsrun/native'
import { duplicateWorld, openCommunicators } from './communicators.ts'
import { mpiCollectives } from './collectives.ts'
import { layOut, low, mpiOn, SENDS, type LibMpi } from './libmpi.ts'

/*
 * Sends streams as MPI messages. Each message is a piece of the stream between two ranks, copied
 * through a slot at the low end of the heap. MPI keeps the messages between two ranks in order. MPI
 * cannot wake a waiting thread, so the thread polls: constantly at first, then less and less often.
 */

/** Milliseconds of constant polling after data has moved, outside and during a collective. */
const RESTLESS = 1
const RESTLESS_IN_COLLECTIVE = 50
/** Milliseconds between two polls: NAP for a second after constant polling, LONG_NAP afterwards. */
const NAP = 0.1
const LONG_NAP = 2
const SECOND = 1000
/** Milliseconds that closing waits for pending sends. */
const CLOSE_TIME = 1000

/** The unread data in a slot. */
interface Arrival {
  readonly slot: number
  from: number
  readonly to: number
}

/** Must be called by all ranks together. @throws ERR_TSR_ENGINE_MEMORY, ERR_TSR_MPI */
export function openMpiTransport(
  lib: LibMpi,
  heap: Heap,
  rank: number,
  worldSize: number,
): BlockingTransport {
  const layout = layOut(worldSize, heap.engineBytes)
  if (layout === undefined) {
    const facts = { rank, bytes: 2 * SENDS * worldSize * 4096, used: 0 }
    throw tsrError('ERR_TSR_ENGINE_MEMORY', { ...facts, capacity: heap.engineBytes })
  }
  const { sends, receives, slotBytes } = layout
  const mpi = mpiOn(heap.bytes, lib)
  const { abi, call, address, integer } = mpi
  const { copy } = instantiateKernels(heap.memory)
  const communicators = openCommunicators(mpi)
  const communicator = duplicateWorld(mpi)
  const collectives = mpiCollectives(mpi, communicators)
  const doorbell = createBell()
  const pollfd = Int32Array.of(doorbell, POLLIN)
  const bed = new Int32Array(new SharedArrayBuffer(4))
  /** Slots of posted receives, in posting order. They fill in the same order. */
  const posted: number[] = []
  const arrivals = Array.from({ length: worldSize }, (): Arrival[] => [])
  /** For each send slot: whether its message is pending. */
  const sending = sends.map(() => false)
  let lastMoved = monotonicNow()

  const post = (slot: number) => {
    const { data, request } = receives[slot]!
    const source = [abi.anySource, 0, communicator, address(request)] as const
    call('Irecv', address(data), slotBytes, abi.handles.byte, ...source)
    posted.push(slot)
  }

  const look = () => {
    for (let slot = posted[0]; slot !== undefined; slot = posted[0]) {
      if (!mpi.isDone(receives[slot]!.request, address(low.status))) return
      posted.shift()
      call('Get_count', address(low.status), abi.handles.byte, address(low.count))
      const source = integer(low.status + abi.sourceAt)
      arrivals[source]!.push({ slot, from: 0, to: integer(low.count) })
      lastMoved = monotonicNow()
    }
  }

  const isSending = (slot: number) => {
    if (sending[slot] !== true) return false
    if (!mpi.isDone(sends[slot]!.request)) return true
    sending[slot] = false
    return false
  }

  const hasRequests = () =>
    posted.some((slot) => !mpi.isDone(receives[slot]!.request)) ||
    sending.some((_, slot) => isSending(slot))

  for (const slot of receives.keys()) post(slot)
  return {
    name: 'mpi',
    movesWhenLookedAt: true,
    reservedBytes: layout.end,
    doorbell,
    collectives,
    trySend: (peer, at, length) => {
      let slot = peer * SENDS
      while (isSending(slot)) if (++slot === (peer + 1) * SENDS) return 0
      const { data, request } = sends[slot]!
      const bytes = Math.min(length, slotBytes)
      copy(data, at, bytes)
      const target = [peer, 0, communicator, address(request)] as const
      call('Isend', address(data), bytes, abi.handles.byte, ...target)
      sending[slot] = true
      lastMoved = monotonicNow()
      return bytes
    },
    tryReceive: (peer, at, length) => {
      const arrived = arrivals[peer]!
      if (arrived.length === 0) look()
      const [first] = arrived
      if (first === undefined) return 0
      const bytes = Math.min(length, first.to - first.from)
      copy(at, receives[first.slot]!.data + first.from, bytes)
      first.from += bytes
      if (first.from === first.to) {
        arrived.shift()
        post(first.slot)
      }
      return bytes
    },
    // A waiting thread polls MPI, so it needs no wake-up.
    wantSend: () => undefined,
    closeReason: () => 'this rank closed the connection',
    // MPI ends connections only when all processes end.
    closePeer: () => undefined,
    sleep: (milliseconds) => {
      const idle = monotonicNow() - lastMoved
      const restless = collectives.isBusy ? RESTLESS_IN_COLLECTIVE : RESTLESS
      if (idle < restless) yieldCore()
      else if (idle < SECOND) Atomics.wait(bed, 0, 0, Math.min(milliseconds, NAP))
      else if (pollFds(addressOf(pollfd), 1, Math.min(milliseconds, LONG_NAP)) > 0) {
        silenceBell(doorbell)
        lastMoved = monotonicNow()
      }
    },
    yield: yieldCore,
    close: () => {
      const end = monotonicNow() + CLOSE_TIME
      collectives.abandon()
      for (const slot of posted) call('Cancel', address(receives[slot]!.request))
      while (hasRequests() && monotonicNow() < end) yieldCore()
      closeNative(doorbell)
    },
  }
}
