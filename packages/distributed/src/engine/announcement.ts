import { spaces } from './frame.ts'
import type { Link } from './link.ts'
import type { Task } from './task.ts'

/** Tells these ranks of the world what this one runs: they find whether they run, or ran, another. */
export function announce(
  { group, operation, fingerprint }: Task,
  peers: Iterable<number>,
  links: readonly (Link | undefined)[],
): void {
  const stream = { space: spaces.collective, group: group.id, sequence: operation.sequence }
  for (const peer of peers) links[peer]?.inquire({ stream, fingerprint })
}

/**
 * A library does not compare what the ranks run. So each tells its neighbours in the group, and of
 * two the later one finds what the other runs.
 */
export function neighboursOf({ group: { rank, ranks } }: Task): Iterable<number> {
  return new Set([ranks.at(rank - 1)!, ranks[(rank + 1) % ranks.length]!])
}
