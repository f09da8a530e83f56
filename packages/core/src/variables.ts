import { tsrError } from './errors/tsr-error.ts'
import { host } from '#host'
import type { Schema } from './schema.ts'

/** Variables of a process by name. */
export type Environment = Readonly<Record<string, string | undefined>>

/**
 * Reads an environment variable. An empty variable counts as not set.
 * @throws ERR_TSR_ENVIRONMENT
 */
export function readVariable<T>(variable: string, of: Schema<T>, env: Environment = host.env): T {
  return of.read(env[variable] === '' ? undefined : env[variable], (value, expected) =>
    tsrError('ERR_TSR_ENVIRONMENT', { variable, value, expected }),
  )
}
