import type { Heap } from '../arena/heap.ts'
import { sameFingerprint } from '../operation.ts'
import { CLOSED, type SharedSlots, type SlotHeader, type Transport } from './transport.ts'

/** Capacity of one direction in bytes. It is small, so that tests see full streams. */
const PIPE_BYTES = 64 * 1024
/** Number of groups with slots. */
const GROUPS = 4
/** Number of groups that can expose buffers. Small, so that tests also use groups that cannot. */
const EXPOSING_GROUPS = 6
/** Bytes of a slot. It is small, so that tests see buffers that do not fit. */
const SLOT = 4 * 1024
/** Offset of the slots in a heap; offset 0 would mean that there is no buffer. */
const FIRST_SLOT = 64

/** Opens one direction between two ranks. */
function openPipe() {
  const bytes = new Uint8Array(PIPE_BYTES)
  let held = 0
  return {
    closed: false,
    isEmpty: () => held === 0,
    write(source: Uint8Array): number {
      const taken = source.subarray(0, PIPE_BYTES - held)
      bytes.set(taken, held)
      held += taken.length
      return taken.length
    },
    read(target: Uint8Array): number {
      const length = Math.min(target.length, held)
      target.set(bytes.subarray(0, length))
      bytes.copyWithin(0, length, held)
      held -= length
      return length
    },
  }
}

/** Creates the publications of one rank in one group. */
function createPublications() {
  return {
    epoch: 0,
    steps: 0,
    withdrawn: 0,
    /** The headers of the last two epochs, indexed by epoch modulo 2. */
    headers: [] as SlotHeader[],
    /** Heap offsets of the exposed buffers of the last two epochs, indexed by epoch modulo 2. */
    exposed: [] as number[],
  }
}

/**
 * Creates the slots of an in-process world. Each rank copies a published buffer into the heaps of all
 * ranks of its host.
 *
 * @param heaps - heaps by rank; the caller fills the array later
 */
function createSlots(hosts: readonly number[], heaps: readonly Heap[]) {
  /** Publications, indexed by rank and then by group. */
  const publications = hosts.map(() => Array.from({ length: EXPOSING_GROUPS }, createPublications))
  const of = (peer: number, group: number) => publications[peer]![group]!
  const slotOf = (peer: number, group: number, epoch: number): number =>
    FIRST_SLOT + ((peer * GROUPS + group) * 2 + (epoch & 1)) * SLOT
  return {
    /** Heap offset of the end of the slots; the same in every heap. */
    end: slotOf(hosts.length, 0, 0),
    slotsOf: (rank: number): SharedSlots => {
      const reaches = (peer: number): boolean => hosts[peer] === hosts[rank]
      const expose: SharedSlots['expose'] = (group, epoch, header, at) => {
        const own = of(rank, group)
        // Copy the header, as in shared memory: a prepared operation changes its header for the next
        // run.
        own.headers[epoch & 1] = { ...header }
        own.exposed[epoch & 1] = at
        own.epoch = epoch
      }
      return {
        groups: GROUPS,
        exposingGroups: EXPOSING_GROUPS,
        slotBytes: SLOT,
        isAwaited: false,
        reaches,
        slotOf,
        publish: (group, epoch, header, at, bytes) => {
          const source = heaps[rank]!.bytes.subarray(at, at + bytes)
          for (const [peer, heap] of heaps.entries()) {
            if (reaches(peer)) heap.bytes.set(source, slotOf(rank, group, epoch))
          }
          expose(group, epoch, header, at)
        },
        expose,
        exposedAt: (peer, group, epoch) => of(peer, group).exposed[epoch & 1]!,
        advance: (group, steps) => {
          of(rank, group).steps = steps
        },
        withdraw: (group, epoch) => {
          of(rank, group).withdrawn = epoch
        },
        hasWithdrawn: (peer, group, epoch) => of(peer, group).withdrawn === epoch,
        entryOf: (peer, group, epoch, { sequence, fingerprint }) => {
          const { epoch: entered, headers } = of(peer, group)
          if (((entered - epoch) | 0) < 0) return 0
          const theirs = headers[epoch & 1]
          const isSame = theirs !== undefined && sameFingerprint(theirs.fingerprint, fingerprint)
          return isSame && theirs.sequence === sequence ? 1 : 2
        },
        hasCompleted: (peer, group, steps) => ((of(peer, group).steps - steps) | 0) >= 0,
        headerOf: (peer, group, epoch) => of(peer, group).headers[epoch & 1]!,
      }
    },
  }
}

/**
 * Creates the heaps, slots and pipes that connect the ranks of an in-process world.
 * @param hosts - the host number of each rank, as in `Transport.hosts`
 */
export function createNetwork(size: number, hosts?: readonly number[]) {
  /** The heaps, indexed by rank. */
  const heaps: Heap[] = []
  const pipes = Array.from({ length: size * size }, openPipe)
  return {
    hosts,
    heaps,
    slots: hosts && createSlots(hosts, heaps),
    pipe: (from: number, to: number) => pipes[from * size + to]!,
  }
}

/**
 * Byte streams within one thread.
 *
 * @param portion - chooses how many of the available bytes to move. A seeded world thus tests many
 * ways to split a stream.
 * @param alter - changes bytes in transit
 */
export function memoryTransport(
  network: ReturnType<typeof createNetwork>,
  rank: number,
  size: number,
  heap: Heap,
  portion: (bytes: number) => number,
  alter = (bytes: Uint8Array): Uint8Array => bytes,
): Transport & { readonly close: (only?: number) => void } {
  const { hosts, heaps, slots, pipe } = network
  heaps[rank] = heap
  return {
    name: 'memory',
    reservedBytes: slots?.end ?? 0,
    slots: slots?.slotsOf(rank),
    hosts,
    sharesMemory: (peer) => hosts !== undefined && hosts[peer] === hosts[rank],
    get: (peer, at, from, bytes) => {
      heap.bytes.set(heaps[peer]!.bytes.subarray(from, from + bytes), at)
    },
    trySend: (peer, at, length) => {
      const outgoing = pipe(rank, peer)
      if (outgoing.closed) return CLOSED
      return outgoing.write(alter(heap.bytes.subarray(at, at + portion(length))))
    },
    tryReceive: (peer, at, length) => {
      const incoming = pipe(peer, rank)
      if (incoming.isEmpty()) return incoming.closed ? CLOSED : 0
      return incoming.read(heap.bytes.subarray(at, at + portion(length)))
    },
    closeReason: () => 'its in-process transport was closed',
    closePeer: (peer) => {
      pipe(rank, peer).closed = pipe(peer, rank).closed = true
    },
    // Ends the streams to all peers, or only the stream to peer `only`.
    close: (only?: number) => {
      for (let peer = 0; peer < size; peer++) {
        if (peer !== rank && peer === (only ?? peer)) pipe(rank, peer).closed = true
      }
    },
  }
}
