import { resolve } from 'node:path'
import { isTsrError, readProtection } from '@tsrun/core'
import type { Values } from './flags.ts'
import { usageError } from './readers.ts'

/** How the network traffic of a job is protected. @throws ERR_TSR_USAGE */
export function toProtection(values: Pick<Values, 'tls'> & Partial<Values>) {
  const files = {
    TSRUN_TLS_CERT: values['tls-cert'],
    TSRUN_TLS_KEY: values['tls-key'],
    TSRUN_TLS_CA: values['tls-ca'],
  }
  const given = Object.entries(files).filter((entry): entry is [string, string] => !!entry[1])
  /** The variables that pass these options to the ranks. */
  const environment: Record<string, string> = {
    TSRUN_TLS: values.tls ? '1' : '0',
    ...Object.fromEntries(given.map(([name, file]) => [name, resolve(file)])),
  }
  try {
    const { protection, certificate } = readProtection(environment)
    return {
      protection,
      certificate,
      environment,
      /** The file with the secret that the hosts share. */
      tokenFile: values['token-file'],
    }
  } catch (cause) {
    if (!isTsrError(cause)) throw cause
    const { variable, expected } = cause.facts
    const flag = `--${String(variable).slice('TSRUN_'.length).toLowerCase().replaceAll('_', '-')}`
    throw usageError(`${flag} needs ${String(expected)}`, cause)
  }
}
