import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { tsrError, type TsrError } from '@tsrun/core'
import {
  addressOfInterface,
  isLoopback,
  localAddressTowards,
  ownAddresses,
  startStoreServer,
  type Store,
  type StoreTls,
} from '@tsrun/store'
import type { HostOptions } from '../args/host-options.ts'
import type { StoreEndpoint } from '../job/nodes.ts'

/** Where node 0 listens, and which address the others use. */
export interface StoreAddress {
  /** The address to listen at. */
  readonly listen: string
  /** The address for the ranks; undefined: the nodes that join say how they reach it. */
  readonly publish: string | undefined
}

/**
 * The address of the store on node 0. Debian gives the name of a host a loopback address (127.0.1.1) on
 * that host. The store then listens everywhere, and the other nodes say which address they use.
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
  const reason = `this host has no such address (${address}); start node 0 on the host that has it`
  throw storeError(masterAddr, masterPort, reason)
}

/**
 * The address at which other hosts reach the ranks of this one: that of `--iface`, or of the interface
 * that leads to the store.
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
    throw storeError(host, port, code === 'ENOTFOUND' ? reasons['ENOTFOUND']! : message, cause)
  }
}

/** What a message about an unreachable node adds for a loopback address; '' for any other. */
export function loopbackHint(address: string): string {
  return isLoopback(address)
    ? ` (${address} is a loopback address: only its own host reaches it)`
    : ''
}

/** The store of a job, which the launcher of node 0 serves. */
export interface JobStore {
  /** The same data without a socket. */
  readonly local: Store
  readonly endpoint: StoreEndpoint
  close(): Promise<void>
}

/**
 * Starts the store of a job in this process.
 *
 * @param onRefused - called for connections that do not prove the token
 * @param tls - how its connections are encrypted; undefined: not at all
 * @throws ERR_TSR_STORE_ADDRESS when it cannot listen there
 */
export async function startJobStore(
  host: string,
  port: number,
  token: string,
  onRefused: (peer: string, reason: string) => void,
  tls?: StoreTls,
): Promise<JobStore> {
  try {
    return await startStoreServer({ host, port, token, onRefused, ...(tls && { tls }) })
  } catch (cause) {
    const { code, message } = systemError(cause)
    const reason = reasons[code ?? ''] ?? message
    throw storeError(host.includes(':') ? `[${host}]` : host, port, reason, cause)
  }
}

/** A port that is free now. @throws ERR_TSR_STORE_ADDRESS when this host has no such address */
export async function findFreePort(host: string): Promise<number> {
  const server = createServer()
  try {
    await once(server.listen(0, host), 'listening')
  } catch (cause) {
    const { code, message } = systemError(cause)
    throw storeError(host, 0, reasons[code ?? ''] ?? message, cause)
  }
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** The error of the operating system, whether it is wrapped or not. */
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

function storeError(host: string, port: number, reason: string, cause?: unknown): TsrError {
  return tsrError('ERR_TSR_STORE_ADDRESS', { endpoint: `${host}:${port}`, reason }, { cause })
}
