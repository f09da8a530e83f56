import { lookup } from 'node:dns/promises'
import { tsrError } from '@tsrun/core'
import {
  addressOfInterface,
  isLoopback,
  localAddressTowards,
  ownAddresses,
  startStoreServer,
  type Store,
} from '@tsrun/store'
import type { HostOptions } from '../args/job-options.ts'

/** Where node 0 listens, and what the others call it. */
export interface StoreAddress {
  /** Address to listen at. */
  readonly listen: string
  /** Address for the ranks; undefined: those who join say how they reach it. */
  readonly publish: string | undefined
}

/**
 * The address of the store on node 0. Debian gives a host's own name a loopback address
 * (127.0.1.1): then the store listens everywhere, and the others know the address that they use.
 *
 * @throws ERR_TSR_STORE_ADDRESS when the name belongs to another host
 */
export async function storeAddress({
  masterAddr,
  masterPort,
}: Pick<HostOptions, 'masterAddr' | 'masterPort'>): Promise<StoreAddress> {
  const { address, family } = await resolve(masterAddr, masterPort)
  if (isLoopback(address)) {
    if (address === masterAddr || /^localhost\b/i.test(masterAddr)) {
      return { listen: address, publish: address }
    }
    return { listen: family === 6 ? '::' : '0.0.0.0', publish: undefined }
  }
  if (ownAddresses().includes(address)) return { listen: address, publish: address }
  const reason = `this host has no such address (${address}); node 0 must run where it belongs`
  throw tsrError('ERR_TSR_STORE_ADDRESS', { endpoint: `${masterAddr}:${masterPort}`, reason })
}

/**
 * The address at which the ranks of this host are reached: `--iface`, or that of the interface
 * which leads to the store.
 *
 * @throws ERR_TSR_INTERFACE
 */
export async function ownAddress({
  iface,
  masterAddr,
  masterPort,
}: Pick<HostOptions, 'iface' | 'masterAddr' | 'masterPort'>): Promise<string> {
  if (iface !== undefined) return addressOfInterface(iface)
  return await localAddressTowards(masterAddr, masterPort)
}

/** @throws ERR_TSR_STORE_ADDRESS */
export async function resolve(
  host: string,
  port: number,
): Promise<{ address: string; family: number }> {
  try {
    return await lookup(host)
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    const unknown = code === 'ENOTFOUND' ? 'the name is unknown' : message
    const endpoint = `${host}:${port}`
    throw tsrError('ERR_TSR_STORE_ADDRESS', { endpoint, reason: unknown }, { cause })
  }
}

/** What to add to a message about somebody who cannot be reached there; '' if nothing. */
export function loopbackHint(address: string): string {
  return isLoopback(address)
    ? ` (${address} is a loopback address: only its own host reaches it)`
    : ''
}

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
