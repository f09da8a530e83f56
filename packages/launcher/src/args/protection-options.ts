import { resolve } from 'node:path'
import { isTsrError, readProtection, type ProtectionSettings } from '@tsrun/core'
import type { Values } from './flags.ts'
import { usageError } from './readers.ts'

/** How the network traffic of a job is protected. */
export interface ProtectionOptions extends ProtectionSettings {
  /** The file with the secret that the hosts share. */
  readonly tokenFile: string | undefined
  /** The variables that pass these options to the ranks. */
  readonly environment: Readonly<Record<string, string>>
}

/** @throws ERR_TSR_USAGE */
export function toProtection(values: Pick<Values, 'tls'> & Partial<Values>): ProtectionOptions {
  const files = {
    TSRUN_TLS_CERT: values['tls-cert'],
    TSRUN_TLS_KEY: values['tls-key'],
    TSRUN_TLS_CA: values['tls-ca'],
  }
  const given = Object.entries(files).filter((entry): entry is [string, string] => !!entry[1])
  const environment = {
    TSRUN_TLS: values.tls ? '1' : '0',
    ...Object.fromEntries(given.map(([name, file]) => [name, resolve(file)])),
  }
  try {
    const { protection, certificate } = readProtection(environment)
    return { protection, certificate, tokenFile: values['token-file'], environment }
  } catch (cause) {
    if (!isTsrError(cause)) throw cause
    const { variable, expected } = cause.facts
    const flag = `--${String(variable).slice('TSRUN_'.length).toLowerCase().replaceAll('_', '-')}`
    throw usageError(`${flag} needs ${String(expected)}`, cause)
  }
}
