import { tsrError, type TsrError } from '@tsrun/core'

/** A plan names `glob`, and no layer has a name that fits. */
export function planError(glob: string, names: readonly string[]): TsrError {
  const expected = `names of layers: ${names.join(', ')}`
  return tsrError('ERR_TSR_ARGUMENT', { name: 'plan', value: glob, expected })
}
