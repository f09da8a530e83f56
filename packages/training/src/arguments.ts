import { shown, tsrError } from '@tsrun/core'

/** @throws ERR_TSR_ARGUMENT unless `value` is true or false */
export function checkFlag(name: string, value: unknown): void {
  if (typeof value === 'boolean') return
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value), expected: 'true or false' })
}

/** Describes a value in an error message, with the kinds of objects that this package knows. */
export function describe(value: unknown): string {
  if (typeof value === 'function' && value.name !== '') return `the function ${value.name}`
  if (typeof value !== 'object' || value === null) return shown(value)
  if ('axes' in value && 'rankAt' in value) return `a mesh of ${String(value.axes)}`
  if ('rank' in value && 'ranks' in value) return 'a process group'
  if ('slice' in value && 'build' in value) return 'a recipe'
  if ('getClassName' in value && 'layers' in value) return 'a model of tf.layers'
  return shown(value)
}

/** @throws ERR_TSR_ARGUMENT unless `value` is one of `choices` */
export function checkChoice(name: string, value: unknown, choices: readonly unknown[]): void {
  if (choices.includes(value)) return
  const names = choices.map(shown)
  const expected = names.length > 2 ? `one of ${names.join(', ')}` : names.join(' or ')
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value), expected })
}
