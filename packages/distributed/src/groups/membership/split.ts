import { tsrError } from '@tsrun/core'
import type { NewGroupOptions } from '../../group-relations.ts'
import type { ProcessGroup } from '../../process-group.ts'
import { waitOptions } from '../calls/arguments.ts'
import { newGroupOf } from './new-group.ts'
import { worldOf } from './world.ts'

/** See `GroupRelations.split`. @throws ERR_TSR_ARGUMENT, and what the collective throws */
export async function splitGroup(
  group: ProcessGroup,
  color: number | null,
  key: number,
  options: NewGroupOptions,
): Promise<ProcessGroup | undefined> {
  if (color !== null) checkInteger('color', color, 'an integer, or null for no group')
  checkInteger('key', key, 'an integer')
  const call = { ...waitOptions(options, worldOf(group).timeout), label: 'split' }
  const all = await group.allGatherObject([color, key] as const, call)
  if (color === null) return undefined
  const ranks = all
    .map(([theirs, order], rank) => ({ theirs, order, rank }))
    .filter(({ theirs }) => theirs === color)
    .sort((a, b) => a.order - b.order || a.rank - b.rank)
    .map(({ rank }) => rank)
  const name = options.name ?? `${group.name}/${color}`
  return await newGroupOf(group, ranks, { ...options, name })
}

function checkInteger(name: string, value: unknown, expected: string): void {
  if (Number.isSafeInteger(value)) return
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: String(value), expected })
}
