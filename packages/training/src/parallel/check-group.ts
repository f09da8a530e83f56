import { shown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

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

/** What somebody has put in the place of something else, in a few words. */
export function describe(value: unknown): string {
  if (typeof value === 'function') return `the function ${value.name}`
  if (typeof value !== 'object' || value === null) return shown(value)
  if ('axes' in value && 'rankAt' in value) return `a mesh of ${String(value.axes)}`
  if ('rank' in value && 'ranks' in value) return 'a process group'
  if ('slice' in value && !('parameters' in value)) return 'a recipe'
  if ('getClassName' in value && 'layers' in value) return 'a model of tf.layers'
  if ('then' in value) return 'a promise'
  const name = (value.constructor as { name: string } | undefined)?.name ?? 'Object'
  return name === 'Object'
    ? `an object of ${Object.keys(value).join(', ') || 'nothing'}`
    : `an object of the class ${name}`
}
