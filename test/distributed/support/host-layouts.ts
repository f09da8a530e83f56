import type { Program } from './programs.ts'

/** Hosts of the ranks, by the program's seed: each its own, all one, two halves, or in turn. */
export function hostsOf({ size, seed }: Pick<Program, 'size' | 'seed'>): number[] {
  const ways = [
    (rank: number) => rank,
    () => 0,
    (rank: number) => (2 * rank < size ? 0 : 1),
    (rank: number) => rank % 3,
  ]
  return Array.from({ length: size }, (_, rank) => ways[seed % ways.length]!(rank))
}
