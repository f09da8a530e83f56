import { tsrError } from '../errors/tsr-error.ts'
import { readFileText } from '../host/files.ts'
import { flag, readVariable, type Environment } from '../schema.ts'

/**
 * Whether the job's network traffic is encrypted: TLS for the store, encrypted records for messages
 * between ranks.
 */
export type Protection = 'none' | 'encrypted'

/** The number of a protection in the hello of a handshake. */
export function protectionCode(protection: Protection): number {
  return protection === 'none' ? 0 : 1
}

/** The command-line flag that selects each protection, for error messages. */
export const protectionFlags: Readonly<Record<Protection, string>> = {
  none: 'no --tls',
  encrypted: '--tls',
}

/** A certificate, its key, and the authority that signed the peers' certificates, as PEM. */
export interface Certificate {
  readonly cert: string
  readonly key: string
  /**
   * Certificate of the authority. Default: `cert`, for a certificate that is self-signed or the
   * same on all hosts.
   */
  readonly ca?: string
}

/** How the connections of a job are protected. */
export interface ProtectionSettings {
  readonly protection: Protection
  /** Certificate of the store; undefined: the store and its clients authenticate by the token. */
  readonly certificate: Certificate | undefined
}

/**
 * Reads TSRUN_TLS, TSRUN_TLS_CERT, TSRUN_TLS_KEY and TSRUN_TLS_CA, which tsrun sets from its flags.
 *
 * @throws ERR_TSR_ENVIRONMENT if TSRUN_TLS is no boolean, or if a file cannot be read
 */
export function readProtection(env: Environment = process.env): ProtectionSettings {
  const { TSRUN_TLS_CERT: cert, TSRUN_TLS_KEY: key, TSRUN_TLS_CA: ca } = env
  const isGiven = [cert, key, ca].some((file) => file !== undefined && file !== '')
  const certificate = isGiven ? readCertificate(cert, key, ca) : undefined
  const isEncrypted = isGiven || readVariable('TSRUN_TLS', flag.default(false), env)
  return { protection: isEncrypted ? 'encrypted' : 'none', certificate }
}

function readCertificate(cert = '', key = '', ca = ''): Certificate {
  const read = (variable: string, file: string) => {
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
