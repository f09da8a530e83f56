import { object, record, text, where } from './schema.ts'
import { TsrError, tsrError, type SerializedTsrError } from './errors/tsr-error.ts'

/** Accepts the facts of an error: texts and numbers by name. */
export const errorFacts = record(
  where<string | number>(
    (value) => ['string', 'number'].includes(typeof value),
    'a text or a number',
  ),
)

const serialized = object({ code: text, message: text, facts: errorFacts, stack: text })

/**
 * Restores an error from `toJSON`, with the same code, message, facts and stack. Another process may
 * send anything, so an invalid value becomes ERR_TSR_INTERNAL.
 */
export function reviveTsrError(sent: SerializedTsrError, options?: ErrorOptions): TsrError {
  if (!serialized.is(sent)) {
    return tsrError('ERR_TSR_INTERNAL', { what: 'another process sent an invalid error' })
  }
  const { code, message, facts, stack } = sent
  const error = new TsrError(code, message, facts, options)
  if (stack !== '') error.stack = stack
  return error
}
