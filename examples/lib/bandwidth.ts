// Bandwidths as a lecture and nccl-tests count them, and how large the buffers may be.
import { totalmem } from 'node:os'

const GIB = 2 ** 30

/** The bandwidth of one operation in GiB/s, by three accounts. */
export interface Bandwidth {
  readonly seconds: number
  /** As the lecture explains it: from the bytes of the *output* of a rank. It prints GiB/s as "GB/s". */
  readonly spoken: number
  /** As the lecture's published code has it: from the bytes of the *input* of a rank. */
  readonly code: number
  /** The bus bandwidth of nccl-tests: what the busiest link carries. */
  readonly busbw: number
}

/**
 * The formula of `lecture_08.py` of CS336 is twice the bytes of a tensor (in and out), times n - 1 other
 * ranks, over n times the duration. Input and output have the same size, so both accounts are busbw,
 * 2(n-1)/n S / t.
 *
 * @param bytes - of the buffer S
 */
export function allReduceBandwidth(bytes: number, ranks: number, seconds: number): Bandwidth {
  const lecture = (bytes * 2 * (ranks - 1)) / (ranks * seconds) / GIB
  const busbw = (((2 * (ranks - 1)) / ranks) * bytes) / seconds / GIB
  return { seconds, spoken: lecture, code: lecture, busbw }
}

/**
 * Here the input of a rank is n times its output. busbw is (n-1)/n S / t, where S is the bytes of the
 * input, and the code of the lecture has the same. Counted by the output, it is the nth part of that.
 *
 * @param bytes - of the output
 */
export function reduceScatterBandwidth(bytes: number, ranks: number, seconds: number): Bandwidth {
  const of = (counted: number): number => (counted * (ranks - 1)) / (ranks * seconds) / GIB
  const busbw = (((ranks - 1) / ranks) * (bytes * ranks)) / seconds / GIB
  return { seconds, spoken: of(bytes), code: of(bytes * ranks), busbw }
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
