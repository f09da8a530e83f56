import { totalmem } from 'node:os'

const MIB = 2 ** 20
/** An arena ends below 4 GiB, and the engine has the first 192 MiB of it. */
const LARGEST_ARENA = 4096 * MIB - 65536
const ENGINE = 256 * MIB

/** Bytes of an arena with room for float32 buffers of `elements` in all. */
export function arenaFor(elements: number): number {
  return elements * 4 + ENGINE
}

export function fitsArena(elements: number): boolean {
  return arenaFor(elements) <= LARGEST_ARENA
}

/** The first of `counts` with which `buffers` such buffers a rank fit half of the host's memory. */
export function elementsThatFit(
  counts: readonly number[],
  buffers: number,
  ranksOnHost: number,
): number {
  const fits = (count: number): boolean =>
    fitsArena(count * buffers) && ranksOnHost * arenaFor(count * buffers) <= totalmem() / 2
  return counts.find(fits) ?? counts.at(-1)!
}
