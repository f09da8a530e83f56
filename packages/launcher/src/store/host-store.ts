import { tsrError } from '@tsrun/core'
import { startStoreServer, type Store } from '@tsrun/store'

export interface HostedStore {
  /** The same data without a socket. */
  readonly local: Store
  readonly endpoint: { readonly host: string; readonly port: number }
  close(): Promise<void>
}

/**
 * Starts the store of a job in this process.
 *
 * @param onRefused - told of connections that do not prove the token
 * @throws ERR_TSR_STORE_ADDRESS when it cannot listen there
 */
export async function hostStore(
  host: string,
  port: number,
  token: string,
  onRefused: (peer: string, reason: string) => void,
): Promise<HostedStore> {
  try {
    return await startStoreServer({ host, port, token, onRefused })
  } catch (cause) {
    const endpoint = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
    throw tsrError('ERR_TSR_STORE_ADDRESS', { endpoint, reason: explain(cause) }, { cause })
  }
}

function explain(error: unknown): string {
  const { code, message } = systemError(error)
  return reasons[code ?? ''] ?? message
}

/** The error of the operating system, whether it was wrapped or not. */
function systemError(error: unknown): NodeJS.ErrnoException {
  const { cause } = error as { cause?: unknown }
  const wrapped = typeof cause === 'object' && cause !== null && 'syscall' in cause
  return (wrapped ? cause : error) as NodeJS.ErrnoException
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another process has taken the port',
  EADDRNOTAVAIL: 'this host has no such address',
  EACCES: 'ports below 1024 need a privileged user',
  ENOTFOUND: 'the name is unknown',
  EAI_AGAIN: 'the name server does not answer',
}
