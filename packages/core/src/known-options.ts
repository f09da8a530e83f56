import { tsrError } from './errors/tsr-error.ts'

/** @throws ERR_TSR_ARGUMENT naming the first option that is none of `known` */
export function refuseUnknown(options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((name) => !known.includes(name))
  if (unknown === undefined) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'options',
    value: `one with ${unknown}`,
    expected: `no others than ${known.join(', ')}`,
  })
}
