// Bandwidths by two formulas, and how large the buffers may be.
import { totalmem } from 'node:os'

const GIB = 2 ** 30

/** The bandwidth of one operation by both formulas. */
export interface Bandwidth {
  readonly seconds: number
  /** The sent bytes of all ranks as the lecture counts them. */
  readonly sentBytes: number
  /** The lecture's figure in GiB/s (it prints "GB/s"). */
  readonly lecture: number
  /** The bus bandwidth of nccl-tests in GiB/s, for comparison. */
  readonly busbw: number
}

/**
 * The formula of `lecture_08.py` of CS336 is twice the bytes of a tensor (in and out), times n - 1 other
 * ranks, over n times the duration. This equals busbw of nccl-tests, 2(n-1)/n S / t.
 *
 * @param bytes - of the buffer S
 */
export function allReduceBandwidth(bytes: number, ranks: number, seconds: number): Bandwidth {
  const sentBytes = bytes * 2 * (ranks - 1)
  return {
    seconds,
    sentBytes,
    lecture: sentBytes / (ranks * seconds) / GIB,
    busbw: (bytes * 2 * (ranks - 1)) / ranks / seconds / GIB,
  }
}

/**
 * The lecture takes the bytes of the output, which is the nth part of the input. busbw is (n-1)/n S / t,
 * where S is the bytes of the input.
 *
 * @param bytes - of the output
 */
export function reduceScatterBandwidth(bytes: number, ranks: number, seconds: number): Bandwidth {
  const sentBytes = bytes * (ranks - 1)
  return {
    seconds,
    sentBytes,
    lecture: sentBytes / (ranks * seconds) / GIB,
    busbw: (bytes * ranks * (ranks - 1)) / ranks / seconds / GIB,
  }
}

const MIB = 2 ** 20
/** An arena ends below 4 GiB, and the engine uses the first 192 MiB of it. */
const LARGEST_ARENA = 4096 * MIB - 65536
const ENGINE = 256 * MIB

/** The bytes of an arena with room for float32 buffers of `elements` elements in total. */
export function arenaFor(elements: number): number {
  return elements * 4 + ENGINE
}

export function fitsArena(elements: number): boolean {
  return arenaFor(elements) <= LARGEST_ARENA
}

/** The first of `counts` with which `buffers` buffers per rank fit into half of the host's memory. */
export function elementsThatFit(
  counts: readonly number[],
  buffers: number,
  ranksOnHost: number,
): number {
  const fits = (count: number): boolean =>
    fitsArena(count * buffers) && ranksOnHost * arenaFor(count * buffers) <= totalmem() / 2
  return counts.find(fits) ?? counts.at(-1)!
}
