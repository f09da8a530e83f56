import { shown, tsrError } from '@tsrun/core'

/** @throws ERR_TSR_ARGUMENT unless `value` is true or false */
export function checkFlag(name: string, value: unknown): void {
  if (typeof value === 'boolean') return
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value), expected: 'true or false' })
}

/** @throws ERR_TSR_ARGUMENT unless `seed` is a number; its digits decide, so it need not be an integer */
export function checkSeed(seed: unknown): void {
  if (Number.isFinite(seed)) return
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'seed', value: shown(seed), expected: 'a number' })
}

/** @throws ERR_TSR_ARGUMENT unless `value` is one of `choices` */
export function checkWord(name: string, value: unknown, choices: readonly string[]): void {
  if (choices.includes(value as string)) return
  const expected = choices.map((choice) => JSON.stringify(choice)).join(' or ')
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value), expected })
}
