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
import { BOARD_BYTES, MOST_READERS } from './shared-board.ts'

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

/*
 * The low end of a heap: for each neighbour a ring in, for each a window on its ring out, then the
 * own board and for each neighbour a window on its board.
 */

function inboundAt(index: number): number {
  return FIRST_RING + index * RING_BYTES
}

/** Offset of the own board, or behind it of the window on a neighbour's. */
function boardAt(neighbours: number, index = -1): number {
  return inboundAt(2 * neighbours) + (index + 1) * BOARD_BYTES
}

function hasBoard(neighbours: number): boolean {
  return neighbours < MOST_READERS
}

/** Bytes at the low end of a heap that are not the engine's. */
export function reservedBytes(neighbours: number): number {
  return boardAt(neighbours, hasBoard(neighbours) ? neighbours : -1)
}

/** By world rank: the offset of its board in this heap, the own one included. */
export function boardsOf({ neighbours }: Sharing, rank: number): (number | undefined)[] {
  const own = neighbours[rank]!
  return neighbours.map((theirs, peer) => {
    const isReadable = hasBoard(own.length) && hasBoard(theirs.length)
    if (!isReadable || (peer !== rank && !own.includes(peer))) return undefined
    return boardAt(own.length, own.indexOf(peer))
  })
}

/** @throws ERR_TSR_ENGINE_MEMORY when the heap is too small for the rings of all neighbours */
export function checkRoom({ engineBytes }: Heap, rank: number, { neighbours }: Sharing): void {
  const bytes = reservedBytes(neighbours[rank]!.length)
  if (bytes <= engineBytes) return
  throw tsrError('ERR_TSR_ENGINE_MEMORY', { rank, bytes, used: 0, capacity: engineBytes })
}

/**
 * Maps a neighbour's heap. Its ring for this rank and its board are also laid over the windows in
 * this heap, so that JavaScript and the kernels reach them. Takes over the descriptor.
 */
export function openNeighbour(
  heap: Heap,
  { neighbours, segments }: Sharing,
  [rank, peer]: readonly [number, number],
  copy: (to: number, from: number, bytes: number) => void,
): Neighbour {
  const { fd, bytes } = segments[peer]!
  const own = neighbours[rank]!
  const inbound = inboundAt(own.indexOf(peer))
  const window = inboundAt(own.length + own.indexOf(peer))
  const theirs = inboundAt(neighbours[peer]!.indexOf(rank))
  const board = boardsOf({ neighbours, segments }, rank)[peer]
  const base = addressOf(heap.bytes)
  let peerBase: number
  try {
    mapFileOver(fd, base + window, RING_BYTES, theirs)
    if (board !== undefined) {
      mapFileOver(fd, base + board, BOARD_BYTES, boardAt(neighbours[peer]!.length))
    }
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
      if (board !== undefined) mapPrivateOver(base + board, BOARD_BYTES)
      unmapFile(peerBase, bytes)
    },
  }
}
