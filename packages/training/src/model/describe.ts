import { shown } from '@tsrun/core'

/** Describes an invalid argument for an error message. */
export function describe(value: unknown): string {
  if (typeof value === 'function' && value.name !== '') return `the function ${value.name}`
  if (typeof value !== 'object' || value === null) return shown(value)
  if ('axes' in value && 'rankAt' in value) return `a mesh of ${String(value.axes)}`
  if ('rank' in value && 'ranks' in value) return 'a process group'
  if ('slice' in value && 'build' in value) return 'a recipe'
  if ('getClassName' in value && 'layers' in value) return 'a model of tf.layers'
  return shown(value)
}
