import { once } from 'node:events'
import { createServer, isIP, type AddressInfo } from 'node:net'
import { Deadline, isTsrError, tsrError, type TsrError } from '@tsrun/core'
import {
  awaitListenAddress,
  isLoopback,
  nameEndpoint,
  startStoreServer,
  systemNames,
  type ListenAddress,
  type Store,
  type StoreTls,
} from '@tsrun/store'
import type { RendezvousOptions } from '../args/rendezvous-options.ts'
import type { JobContext } from '../job/job.ts'
import type { StoreEndpoint } from '../protocol/nodes.ts'
import { announceWait } from './waiting.ts'

/**
 * Determines where the store of node 0 listens. A new host may start before its name resolves, or the
 * name may still resolve to a lost host. Waits until the name resolves to this host, up to
 * `--rdzv-timeout`.
 *
 * @param isSaid - whether an option makes this host node 0
 * @returns undefined if `isSaid` is false and the name belongs to another host
 */
export async function findStoreAddress(
  { host, port, timeout }: Pick<RendezvousOptions, 'host' | 'port' | 'timeout'>,
  isSaid: boolean,
  { announcer, interrupts: { stop } }: JobContext,
  names = systemNames,
): Promise<ListenAddress | undefined> {
  const deadline = Deadline.after(timeout)
  const waiting = announceWait(announcer, 'the name of node 0')
  const what = 'looking for the address of node 0'
  try {
    return await awaitListenAddress(host, {
      isSaid,
      deadline,
      what,
      signal: stop,
      names,
      onMissing: (reason) => {
        if (isIP(host) !== 0) throw storeError(host, port, reason)
        waiting.whom = `the name of node 0: ${reason}`
      },
    })
  } catch (cause) {
    if (!isTsrError(cause) || cause.code !== 'ERR_TSR_TIMEOUT') throw cause
    throw rendezvousTimeout(timeout, waiting.whom, cause)
  } finally {
    waiting.end()
  }
}

/** @param missing - what the node waited for */
export function rendezvousTimeout(
  milliseconds: number,
  missing: string,
  cause?: unknown,
): TsrError {
  const facts = { seconds: milliseconds / 1000, missing }
  return tsrError('ERR_TSR_RENDEZVOUS_TIMEOUT', facts, { cause })
}

/** A hint for messages about an unreachable node at a loopback address; '' for other addresses. */
export function loopbackHint(address: string): string {
  return isLoopback(address)
    ? ` (${address} is a loopback address: only its own host reaches it)`
    : ''
}

/** The store of a job, served by the launcher of node 0. */
export interface JobStore {
  /** The same store, accessed without a socket. */
  readonly local: Store
  readonly endpoint: StoreEndpoint
  close(): Promise<void>
}

/** @param onRefused - called for connections that do not prove the token */
export async function startJobStore(
  host: string,
  port: number,
  token: string,
  onRefused: (peer: string, reason: string) => void,
  tls?: StoreTls,
): Promise<JobStore> {
  try {
    return await startStoreServer({ host, port, token, onRefused, tls })
  } catch (cause) {
    throw listenError(host, port, cause)
  }
}

/** A port that is free now. @throws ERR_TSR_STORE_ADDRESS if this host has no such address */
export async function findFreePort(host: string): Promise<number> {
  const server = createServer()
  try {
    await once(server.listen(0, host), 'listening')
  } catch (cause) {
    throw listenError(host, 0, cause)
  }
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** @param error - an error of a system call, or an error with such a `cause` */
function listenError(host: string, port: number, error: unknown): TsrError {
  const { cause } = error as { cause?: unknown }
  const isWrapped = typeof cause === 'object' && cause !== null && 'syscall' in cause
  const { message } = (isWrapped ? cause : error) as Error
  return storeError(host, port, message, error)
}

function storeError(host: string, port: number, reason: string, cause?: unknown): TsrError {
  return tsrError(
    'ERR_TSR_STORE_ADDRESS',
    { endpoint: nameEndpoint(host, port), reason },
    { cause },
  )
}
