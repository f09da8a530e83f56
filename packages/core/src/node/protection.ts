import { tsrError } from '../errors/tsr-error.ts'
import { readFileText } from '../host/files.ts'
import { flag } from '../schema.ts'
import { readVariable } from '../variables.ts'

/** Whether what a job sends over the network is encrypted: its store by TLS, messages between ranks in records. */
export type Protection = 'none' | 'encrypted'

const protections: readonly Protection[] = ['none', 'encrypted']

/** The number that stands for it in a hello. */
export function protectionCode(protection: Protection): number {
  return protections.indexOf(protection)
}

/** What to say to get it, for messages. */
export const protectionFlags: Readonly<Record<Protection, string>> = {
  none: 'no --tls',
  encrypted: '--tls',
}

/** A certificate with its key, and the authority that has signed those of the others, as PEM. */
export interface Certificate {
  readonly cert: string
  readonly key: string
  /** Default: `cert`, which then has signed itself, or is the same on all hosts. */
  readonly ca?: string
}

export interface ProtectionSettings {
  readonly protection: Protection
  /** For the store; undefined: its clients and itself know each other by the token. */
  readonly certificate: Certificate | undefined
}

type Environment = Readonly<Record<string, string | undefined>>

/**
 * Reads TSRUN_TLS, and TSRUN_TLS_CERT, _KEY and _CA, which tsrun sets from its flags.
 *
 * @throws ERR_TSR_ENVIRONMENT for other values than 1 and 0, and for files that cannot be read
 */
export function readProtection(env: Environment = process.env): ProtectionSettings {
  const { TSRUN_TLS_CERT: cert, TSRUN_TLS_KEY: key, TSRUN_TLS_CA: ca } = env
  const isGiven = [cert, key, ca].some((file) => file !== undefined && file !== '')
  const certificate = isGiven ? readCertificate(cert, key, ca) : undefined
  const isEncrypted = isGiven || readVariable('TSRUN_TLS', flag.default(false), env)
  return { protection: isEncrypted ? 'encrypted' : 'none', certificate }
}

/** @throws ERR_TSR_ENVIRONMENT */
function readCertificate(cert = '', key = '', ca = ''): Certificate {
  const read = (variable: string, file: string): string => {
    try {
      return readFileText(file)
    } catch (cause) {
      const expected = 'the name of a file in the format PEM; a certificate and its key go together'
      throw tsrError('ERR_TSR_ENVIRONMENT', { variable, value: file, expected }, { cause })
    }
  }
  return {
    cert: read('TSRUN_TLS_CERT', cert),
    key: read('TSRUN_TLS_KEY', key),
    ...(ca !== '' && { ca: read('TSRUN_TLS_CA', ca) }),
  }
}
