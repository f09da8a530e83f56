import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { describe } from '../arguments.ts'

/**
 * That there is a group where one is expected, before anything is made for it.
 *
 * @param name - of the argument
 * @throws ERR_TSR_ARGUMENT
 */
export function checkGroup(
  group: Pick<ProcessGroup, 'rank' | 'size'> | undefined,
  name = 'group',
): void {
  const { rank, size } = (group as Partial<ProcessGroup> | undefined | null) ?? {}
  if (typeof rank === 'number' && typeof size === 'number') return
  const expected = 'a process group, as initProcessGroup() gives, or an axis of a mesh'
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: describe(group), expected })
}
