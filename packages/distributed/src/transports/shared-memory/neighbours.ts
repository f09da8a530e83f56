import { tsrError } from '@tsrun/core'
import {
  addressOf,
  closeSocket,
  copyMemory,
  mapFile,
  mapFileOver,
  mapPrivateOver,
  unmapFile,
} from '@tsrun/native'
import type { Heap } from '../../arena/heap.ts'
import { RING_BYTES, RingReader, RingWriter } from './ring.ts'

/** The first page of a segment holds its nonce. */
const FIRST_RING = 4096

/** Who shares memory with whom, the same on every rank; see `agreeOnSharing`. */
export interface Sharing {
  /** By rank: the ranks that share memory with it, ascending. */
  readonly neighbours: readonly (readonly number[])[]
  /** By rank: this rank's descriptor of the segment, where it is shared. */
  readonly segments: readonly ({ readonly fd: number; readonly bytes: number } | undefined)[]
}

/** The mapped heap of another rank of this host, and the rings to and from it. */
export interface Neighbour {
  readonly writer: RingWriter
  readonly reader: RingReader
  /** Copies out of its heap into this one. */
  pull(at: number, from: number, bytes: number): void
  unmap(): void
}

/**
 * Numbers the hosts by their lowest rank. Ranks that share memory with some of a host only, as where
 * rights differ, count as hosts of their own.
 */
export function hostsOf({ neighbours }: Sharing): number[] {
  const circleOf = (rank: number): string =>
    [...neighbours[rank]!, rank].sort((a, b) => a - b).join()
  return neighbours.map((peers, rank) =>
    peers.every((peer) => circleOf(peer) === circleOf(rank)) ? Math.min(rank, ...peers) : rank,
  )
}

/** Lets go of the memory of others that will not be mapped. */
export function closeSegments({ segments }: Sharing): void {
  for (const segment of segments) if (segment !== undefined) closeSocket(segment.fd)
}

/** Bytes at the low end of a heap that its rings take up: one in, one window on one out a neighbour. */
export function ringsEnd(neighbours: number): number {
  return FIRST_RING + 2 * neighbours * RING_BYTES
}

/** @throws ERR_TSR_ENGINE_MEMORY when the heap is too small for the rings of all neighbours */
export function checkRoom({ engineBytes }: Heap, rank: number, { neighbours }: Sharing): void {
  const bytes = ringsEnd(neighbours[rank]!.length)
  if (bytes <= engineBytes) return
  throw tsrError('ERR_TSR_ENGINE_MEMORY', { rank, bytes, used: 0, capacity: engineBytes })
}

/**
 * Maps a neighbour's heap. Its ring for this rank is also laid over the window in this heap, so
 * that JavaScript and the kernels reach it. Takes over the descriptor.
 */
export function openNeighbour(
  heap: Heap,
  { neighbours, segments }: Sharing,
  [rank, peer]: readonly [number, number],
  copy: (to: number, from: number, bytes: number) => void,
): Neighbour {
  const { fd, bytes } = segments[peer]!
  const own = neighbours[rank]!
  const inbound = FIRST_RING + own.indexOf(peer) * RING_BYTES
  const window = FIRST_RING + (own.length + own.indexOf(peer)) * RING_BYTES
  const theirs = FIRST_RING + neighbours[peer]!.indexOf(rank) * RING_BYTES
  const base = addressOf(heap.bytes)
  let peerBase: number
  try {
    mapFileOver(fd, base + window, RING_BYTES, theirs)
    peerBase = mapFile(fd, bytes)
  } finally {
    closeSocket(fd)
  }
  return {
    writer: new RingWriter(heap, window, copy),
    reader: new RingReader(heap, inbound, copy),
    pull: (at, from, length) => {
      if (from + length > bytes) throw new RangeError('an offer outside the peer’s heap')
      copyMemory(base + at, peerBase + from, length)
    },
    unmap: () => {
      mapPrivateOver(base + window, RING_BYTES)
      unmapFile(peerBase, bytes)
    },
  }
}
