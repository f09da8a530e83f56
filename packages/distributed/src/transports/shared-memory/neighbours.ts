import { tsrError } from '@tsrun/core'
import {
  addressOf,
  closeNative,
  copyMemory,
  mapFileOver,
  mapPrivateOver,
  ringBell,
  unmapFile,
} from '@tsrun/native'
import type { Heap } from '../../arena/heap.ts'
import type { Kernels, SharedKernels } from '../../kernels/kernels.ts'
import { Mailbox, MAILBOX_BYTES, type Mail } from '../mailbox.ts'
import type { MappedHeap } from '../transport.ts'
import { RING_BUFFER_BYTES, RingBufferReader, RingBufferWriter } from './ring-buffer.ts'
import { MappedSlots, MOST_READERS, SLOTS_BYTES } from './slots.ts'

/** Offset of the first ring buffer. The first page of a heap holds the nonce. */
const FIRST_BUFFER = 4096
/**
 * Number of times to poll each word before yielding the core. Polling takes 10 us for one word and
 * 50 us for two.
 */
export const SPIN_LOOKS = 8000

/** The ranks that share memory, as determined by `agreeOnSharing`. The same on every rank. */
export interface Sharing {
  /** For each rank, the ranks that share memory with it, ascending. */
  readonly neighbours: readonly (readonly number[])[]
  /** The opened segment of each rank; undefined if not shared. */
  readonly segments: readonly (SharedSegment | undefined)[]
  /** The bell of this rank; undefined if this rank offers no segment. */
  readonly bell: number | undefined
}

/** The segment and the bell of another rank, as this rank has opened them. */
export interface SharedSegment {
  readonly fd: number
  readonly heap: MappedHeap
  readonly bell: number
}

/**
 * Numbers the hosts by their lowest rank. A rank may share memory with only some ranks of its host,
 * for example due to permissions. Such a rank counts as a separate host.
 */
export function hostsOf({ neighbours }: Pick<Sharing, 'neighbours'>): number[] {
  const circles = neighbours.map((peers, rank) => [...peers, rank].sort((a, b) => a - b).join())
  return neighbours.map((peers, rank) =>
    peers.every((peer) => circles[peer] === circles[rank]) ? Math.min(rank, ...peers) : rank,
  )
}

/** Closes the segments of other ranks, and all bells. */
export function closeSegments({ segments, bell }: Sharing): void {
  for (const segment of segments) if (segment !== undefined) closeSegment(segment)
  if (bell !== undefined) closeNative(bell)
}

export function closeSegment({ fd, bell, heap }: SharedSegment): void {
  closeNative(fd)
  closeNative(bell)
  unmapFile(heap.address, heap.bytes)
}

/*
 * Layout of the low end of a heap. First: an incoming ring buffer and mailbox for each neighbour.
 * Second: a window for each neighbour, over which those of the neighbour are mapped. Third: the slots
 * of this rank. Fourth: a window for each neighbour, over which its slots are mapped.
 */

const INBOUND_BYTES = RING_BUFFER_BYTES + MAILBOX_BYTES

function inboundAt(index: number): number {
  return FIRST_BUFFER + index * INBOUND_BYTES
}

/** Returns the offset of this rank's slots (index -1), or of the slots of neighbour `index`. */
function slotsAt(neighbours: number, index = -1): number {
  return inboundAt(2 * neighbours) + (index + 1) * SLOTS_BYTES
}

function hasSlots(neighbours: number): boolean {
  return neighbours < MOST_READERS
}

/** Returns the size in bytes of the low end of the heap, which the transport uses. */
export function reservedBytes(neighbours: number): number {
  return slotsAt(neighbours, hasSlots(neighbours) ? neighbours : -1)
}

/** Returns the offset in this heap of the slots of a world rank, which may be this rank. */
function slotsOf(
  neighbours: Sharing['neighbours'],
  rank: number,
  peer: number,
): number | undefined {
  const own = neighbours[rank]!
  const isReadable = hasSlots(own.length) && hasSlots(neighbours[peer]!.length)
  if (!isReadable || (peer !== rank && !own.includes(peer))) return undefined
  return slotsAt(own.length, own.indexOf(peer))
}

/**
 * Opens the slots and mailboxes of this host's ranks for one thread of a rank. They work once any
 * thread has opened the neighbours.
 * @param spins - whether each rank has a spare core for waiting
 */
export function openShared(
  heap: Heap,
  kernels: SharedKernels,
  rank: number,
  { neighbours, segments }: Sharing,
  spins: boolean,
): { slots: MappedSlots; mail: (Mail | undefined)[] } {
  const looks = spins ? SPIN_LOOKS : 1
  const { copy } = kernels
  const wake = (peer: number): void => {
    ringBell(segments[peer]!.bell)
  }
  const slots = new MappedSlots({
    heap,
    kernels,
    rank,
    places: neighbours.map((_, peer) => slotsOf(neighbours, rank, peer)),
    wake,
    looks,
  })
  const own = neighbours[rank]!
  const mailboxAt = (buffer: number): Mailbox =>
    new Mailbox(heap, buffer + RING_BUFFER_BYTES, kernels, looks)
  const mail = neighbours.map((_, peer) => {
    const index = own.indexOf(peer)
    if (index < 0) return undefined
    const window = inboundAt(own.length + index)
    const writer = new RingBufferWriter(heap, window, copy)
    return {
      incoming: mailboxAt(inboundAt(index)),
      outgoing: mailboxAt(window),
      wake: () => {
        if (writer.shouldWake()) wake(peer)
      },
    }
  })
  return { slots, mail }
}

/** @throws ERR_TSR_ENGINE_MEMORY if the heap is too small for the ring buffers of all neighbours */
export function checkRoom(
  { engineBytes }: Heap,
  rank: number,
  { neighbours }: Pick<Sharing, 'neighbours'>,
): void {
  const bytes = reservedBytes(neighbours[rank]!.length)
  if (bytes <= engineBytes) return
  throw tsrError('ERR_TSR_ENGINE_MEMORY', { rank, bytes, used: 0, capacity: engineBytes })
}

/** Copies `length` bytes from offset `from` of a neighbour's heap to an address of this process. */
export function copyFrom(
  { address, bytes }: MappedHeap,
  from: number,
  to: number,
  length: number,
): void {
  if (from + length > bytes) throw new RangeError('a payload outside the peer’s heap')
  copyMemory(to, address + from, length)
}

/** Another rank of this host: its heap, and the ring buffers to and from it. */
export type Neighbour = ReturnType<typeof openNeighbour>

/**
 * Maps two parts of a neighbour's heap over the windows in this heap, so that JavaScript and the
 * kernels can access them: its ring buffer for this rank, and its slots. Takes ownership of the
 * segment.
 */
export function openNeighbour(
  heap: Heap,
  { neighbours, segments }: Sharing,
  [rank, peer]: readonly [number, number],
  copy: Kernels['copy'],
) {
  const segment = segments[peer]!
  const { fd, bell } = segment
  const own = neighbours[rank]!
  const inbound = inboundAt(own.indexOf(peer))
  const window = inboundAt(own.length + own.indexOf(peer))
  const theirs = inboundAt(neighbours[peer]!.indexOf(rank))
  const slots = slotsOf(neighbours, rank, peer)
  const base = addressOf(heap.bytes)
  try {
    mapFileOver(fd, base + window, INBOUND_BYTES, theirs)
    if (slots !== undefined) {
      mapFileOver(fd, base + slots, SLOTS_BYTES, slotsAt(neighbours[peer]!.length))
    }
  } finally {
    closeNative(fd)
  }
  return {
    writer: new RingBufferWriter(heap, window, copy),
    reader: new RingBufferReader(heap, inbound, copy),
    bell,
    heap: segment.heap,
    release: (): void => {
      closeNative(bell)
      mapPrivateOver(base + window, INBOUND_BYTES)
      if (slots !== undefined) mapPrivateOver(base + slots, SLOTS_BYTES)
      unmapFile(segment.heap.address, segment.heap.bytes)
    },
  }
}
