import { tsrError } from '@tsrun/core'
import {
  addressOf,
  closeNative,
  copyMemory,
  mapFile,
  mapFileOver,
  mapPrivateOver,
  ringBell,
  unmapFile,
} from '@tsrun/native'
import type { Heap } from '../../arena/heap.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { MappedHeap } from '../transport.ts'
import { RING_BUFFER_BYTES, RingBufferReader, RingBufferWriter } from './ring-buffer.ts'
import { MappedSlots, MOST_READERS, SLOTS_BYTES } from './slots.ts'

/** The first page of a heap holds its nonce. */
const FIRST_BUFFER = 4096
/** Polls of each word before the core is yielded: 10 us for one word, 50 us for two. */
export const SPIN_LOOKS = 8000

/** Who shares memory with whom, the same on every rank; see `agreeOnSharing`. */
export interface Sharing {
  /** By rank: the ranks that share memory with it, ascending. */
  readonly neighbours: readonly (readonly number[])[]
  /** By rank: this rank's descriptor of the segment, where it is shared. */
  readonly segments: readonly (SharedSegment | undefined)[]
  /** This rank's bell; undefined where it offers no segment. */
  readonly bell: number | undefined
}

/** The memory and the bell of another rank, as this one has opened them. */
export interface SharedSegment {
  readonly fd: number
  readonly bytes: number
  readonly bell: number
}

/** Another rank of this host: its heap, and the ring buffers to and from it. */
export interface Neighbour {
  readonly writer: RingBufferWriter
  readonly reader: RingBufferReader
  readonly bell: number
  readonly heap: MappedHeap
  release(): void
}

/**
 * Numbers the hosts by their lowest rank. A rank that shares memory with only some ranks of its host,
 * as where rights differ, counts as a host of its own.
 */
export function hostsOf({ neighbours }: Pick<Sharing, 'neighbours'>): number[] {
  const circles = neighbours.map((peers, rank) => [...peers, rank].sort((a, b) => a - b).join())
  return neighbours.map((peers, rank) =>
    peers.every((peer) => circles[peer] === circles[rank]) ? Math.min(rank, ...peers) : rank,
  )
}

/** Releases the memory of other ranks that will not be mapped, and all bells. */
export function closeSegments({ segments, bell }: Sharing): void {
  for (const segment of segments) if (segment !== undefined) closeSegment(segment)
  if (bell !== undefined) closeNative(bell)
}

export function closeSegment({ fd, bell }: SharedSegment): void {
  closeNative(fd)
  closeNative(bell)
}

/*
 * The low end of a heap: for each neighbour a ring buffer in, for each a window on the ring buffer
 * out, then this rank's slots and for each neighbour a window on its slots.
 */

function inboundAt(index: number): number {
  return FIRST_BUFFER + index * RING_BUFFER_BYTES
}

/** Offset of the own slots, or behind them of the window on a neighbour's. */
function slotsAt(neighbours: number, index = -1): number {
  return inboundAt(2 * neighbours) + (index + 1) * SLOTS_BYTES
}

function hasSlots(neighbours: number): boolean {
  return neighbours < MOST_READERS
}

/** Bytes at the low end of a heap that are not the engine's. */
export function reservedBytes(neighbours: number): number {
  return slotsAt(neighbours, hasSlots(neighbours) ? neighbours : -1)
}

/** By world rank: the offset of its slots in this heap, the own ones included. */
function slotPlaces(
  { neighbours }: Pick<Sharing, 'neighbours'>,
  rank: number,
): (number | undefined)[] {
  return neighbours.map((_, peer) => slotsOf(neighbours, rank, peer))
}

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
 * The slots of this host for one thread of a rank. They are there as soon as the neighbours have been
 * opened, by whichever thread.
 *
 * @param spins - whether a rank that waits has a core of its own
 */
export function openSlots(
  heap: Heap,
  kernels: Kernels,
  rank: number,
  sharing: Sharing,
  spins: boolean,
): MappedSlots {
  const { segments } = sharing
  return new MappedSlots({
    heap,
    copy: (to, from, bytes) => {
      kernels.copy(to, from, bytes)
    },
    rank,
    places: slotPlaces(sharing, rank),
    hasCome: (word, count) => kernels.awaitCount(word, count, spins ? SPIN_LOOKS : 1),
    wake: (peer) => {
      ringBell(segments[peer]!.bell)
    },
  })
}

/** @throws ERR_TSR_ENGINE_MEMORY when the heap is too small for the ring buffers of all neighbours */
export function checkRoom(
  { engineBytes }: Heap,
  rank: number,
  { neighbours }: Pick<Sharing, 'neighbours'>,
): void {
  const bytes = reservedBytes(neighbours[rank]!.length)
  if (bytes <= engineBytes) return
  throw tsrError('ERR_TSR_ENGINE_MEMORY', { rank, bytes, used: 0, capacity: engineBytes })
}

/** Copies `length` bytes at `from` of a neighbour's heap to an address of this process. */
export function copyFrom(
  { address, bytes }: MappedHeap,
  from: number,
  to: number,
  length: number,
): void {
  if (from + length > bytes) throw new RangeError('a payload outside the peer’s heap')
  copyMemory(to, address + from, length)
}

/**
 * Maps a neighbour's heap. Its ring buffer for this rank and its slots are also mapped over the
 * windows in this heap, so that JavaScript and the kernels reach them. Takes over the descriptors.
 */
export function openNeighbour(
  heap: Heap,
  { neighbours, segments }: Sharing,
  [rank, peer]: readonly [number, number],
  copy: (to: number, from: number, bytes: number) => void,
): Neighbour {
  const { fd, bytes, bell } = segments[peer]!
  const own = neighbours[rank]!
  const inbound = inboundAt(own.indexOf(peer))
  const window = inboundAt(own.length + own.indexOf(peer))
  const theirs = inboundAt(neighbours[peer]!.indexOf(rank))
  const slots = slotsOf(neighbours, rank, peer)
  const base = addressOf(heap.bytes)
  let peerBase: number
  try {
    mapFileOver(fd, base + window, RING_BUFFER_BYTES, theirs)
    if (slots !== undefined) {
      mapFileOver(fd, base + slots, SLOTS_BYTES, slotsAt(neighbours[peer]!.length))
    }
    peerBase = mapFile(fd, bytes)
  } finally {
    closeNative(fd)
  }
  return {
    writer: new RingBufferWriter(heap, window, copy),
    reader: new RingBufferReader(heap, inbound, copy),
    bell,
    heap: { address: peerBase, bytes },
    release: () => {
      closeNative(bell)
      mapPrivateOver(base + window, RING_BUFFER_BYTES)
      if (slots !== undefined) mapPrivateOver(base + slots, SLOTS_BYTES)
      unmapFile(peerBase, bytes)
    },
  }
}
