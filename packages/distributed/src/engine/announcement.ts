import { spaces } from './frame.ts'
import type { Link } from './link.ts'
import type { Task } from './task.ts'

/**
 * A library does not compare what the ranks run. So each tells its neighbours in the group, and of
 * two the later one finds what the other runs, or ran.
 */
export function announce(
  { group, operation, fingerprint }: Task,
  links: readonly (Link | undefined)[],
): void {
  const { id, rank, ranks } = group
  const stream = { space: spaces.collective, group: id, sequence: operation.sequence }
  for (const peer of new Set([ranks.at(rank - 1), ranks[(rank + 1) % ranks.length]])) {
    const link = peer === undefined ? undefined : links[peer]
    link?.inquire({ stream, fingerprint })
  }
}
