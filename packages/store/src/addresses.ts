import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { readFileSync, readlinkSync } from 'node:fs'
import { isIP } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { tsrError, waitOrAbort, type Deadline } from '@tsrun/core'

/** How names of hosts become addresses, and which of those this host has. */
export interface Names {
  /** All addresses of a host, the preferred one first. @throws the error of the resolver */
  lookup(host: string): Promise<readonly string[]>
  /** See `ownAddresses`. */
  own(): readonly string[]
}

export const systemNames: Names = {
  lookup: async (host) => (await lookup(host, { all: true })).map(({ address }) => address),
  own: ownAddresses,
}

/** Where a host listens that others find by a name or an address. */
export interface ListenAddress {
  /** An address of this host, or `::` for all of both families. */
  readonly listen: string
  /** The same for others; undefined: each of them knows at which address it reaches this host. */
  readonly publish: string | undefined
}

/** A name that does not lead to this host, or not yet: names of new hosts may take a while. */
export interface OtherHost {
  /** Whether it leads to any host. */
  readonly isKnown: boolean
  readonly reason: string
}

/**
 * Where this host listens if `host` is its name or address. One of several addresses is enough: the others
 * may be of a family that this host lacks. Debian gives the name of a host a loopback address (127.0.1.1)
 * on that host, so others know it by another one.
 */
export async function findListenAddress(
  host: string,
  names: Names = systemNames,
): Promise<ListenAddress | OtherHost> {
  let addresses: readonly string[]
  try {
    addresses = await names.lookup(host)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const isUnknown = code === 'ENOTFOUND' || code === 'EAI_AGAIN'
    const reason = isUnknown ? `the name ${host} is unknown (${code})` : message
    return { isKnown: false, reason }
  }
  const own = names.own()
  const [first, ...others] = new Set(
    addresses.filter((address) => isLoopback(address) || own.includes(address)),
  )
  if (first === undefined) {
    const list = addresses.filter((address) => address !== host).join(', ')
    const reason = `${host}${list && ` (${list})`} is no address of this host`
    return { isKnown: true, reason }
  }
  const isMeant = isIP(host) !== 0 || isLocalhost(host)
  if (isMeant || (others.length === 0 && !isLoopback(first))) {
    return { listen: first, publish: first }
  }
  return { listen: '::', publish: undefined }
}

export interface NameWait {
  /** Whether an option says that it is this host. Otherwise a name of another host means that it is not. */
  readonly isSaid: boolean
  readonly deadline: Deadline
  /** What is waited for, in the error at the deadline. */
  readonly what: string
  readonly signal?: AbortSignal | undefined
  readonly names?: Names
  /** Called each time that the address is not there yet; throws to give up. */
  readonly onMissing: (reason: string) => void
}

/** Milliseconds between two lookups of a name that does not lead here yet. */
const LOOK_AGAIN = 1000

/**
 * Waits until `host` is a name or an address of this host: a new host may come before its name, or the
 * name may still lead to a host that is gone.
 *
 * @returns undefined if it is known, and that of another host
 * @throws ERR_TSR_TIMEOUT, ERR_TSR_ABORTED, what `onMissing` throws
 */
export async function awaitListenAddress(
  host: string,
  { isSaid, deadline, what, signal, names, onMissing }: NameWait,
): Promise<ListenAddress | undefined> {
  for (;;) {
    const found = await waitOrAbort(findListenAddress(host, names), what, deadline, signal)
    if ('listen' in found) return found
    if (found.isKnown && !isSaid) return undefined
    onMissing(found.reason)
    await waitOrAbort(pause(LOOK_AGAIN), what, deadline, signal)
  }
}

/** Whether a name stands for this host on every host. */
export function isLocalhost(name: string): boolean {
  return /^localhost\b/i.test(name)
}

/**
 * The address of the interface that leads to `host`, at which peers can reach this process. Nothing
 * is sent: connecting a UDP socket only consults the routing table.
 */
export async function localAddressTowards(host: string, port: number): Promise<string> {
  let failure: unknown
  for (const address of await systemNames.lookup(host)) {
    try {
      return await addressTowards(address, port)
    } catch (error) {
      // no way leads there, as to IPv6 from a host that has none
      failure = error
    }
  }
  throw failure
}

async function addressTowards(address: string, port: number): Promise<string> {
  if (isLoopback(address)) return address === '::1' ? address : '127.0.0.1'
  const socket = createSocket(isIP(address) === 6 ? 'udp6' : 'udp4')
  try {
    socket.connect(port, address)
    await once(socket, 'connect')
    return socket.address().address
  } finally {
    socket.close()
  }
}

/**
 * The address that `--iface` names: an address of this host, or the first one of an interface,
 * IPv4 before IPv6.
 *
 * @throws ERR_TSR_INTERFACE naming the interfaces that exist
 */
export function addressOfInterface(name: string): string {
  const interfaces = networkInterfaces()
  const addresses = Object.hasOwn(interfaces, name) ? (interfaces[name] ?? []) : []
  const found = addresses.find(({ family }) => family === 'IPv4') ?? addresses[0]
  if (found !== undefined) return found.address
  if (isIP(name) !== 0 && ownAddresses().includes(name)) return name
  const known = Object.entries(interfaces)
    .map(([own, of = []]) => `${own} (${of.map(({ address }) => address).join(', ')})`)
    .join(', ')
  throw tsrError('ERR_TSR_INTERFACE', { name, known: known === '' ? 'none' : known })
}

/**
 * An address at which other hosts reach this one: that of `iface`, else of the host's name, else any.
 *
 * @throws ERR_TSR_INTERFACE, ERR_TSR_LOOPBACK when this host has loopback addresses only
 */
export async function reachableAddress(iface = ''): Promise<string> {
  if (iface !== '') return addressOfInterface(iface)
  const own = ownAddresses().filter((address) => !isLoopback(address))
  const named = await systemNames.lookup(hostname()).catch(() => [])
  const address = named.find((each) => own.includes(each)) ?? own[0]
  if (address !== undefined) return address
  throw tsrError('ERR_TSR_LOOPBACK', { who: 'Rank 0', address: named[0] ?? '127.0.0.1' })
}

/** Whether other hosts may reach what listens at `host`. */
export async function isReachable(host: string, names: Names = systemNames): Promise<boolean> {
  // Where the name is unknown, listening fails.
  const addresses = await names.lookup(host).catch(() => [])
  return addresses
    .flatMap((address) => (['0.0.0.0', '::'].includes(address) ? names.own() : address))
    .some((address) => !isLoopback(address))
}

/** The addresses of this host's interfaces. All of 127.0.0.0/8 lead here too, see `isLoopback`. */
export function ownAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((of = []) => of.map(({ address }) => address))
}

/** Whether the IP address can be reached only from this host. */
export function isLoopback(address: string): boolean {
  return /^(::ffff:)?127\.\d+\.\d+\.\d+$/.test(address) || address === '::1'
}

/**
 * A text that is the same for processes that share a network, loopback included: it names the boot of
 * the kernel and the network namespace, or the host where there is no /proc.
 */
export function hostIdentity(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
    return `${boot} ${readlinkSync('/proc/self/ns/net')}`
  } catch {
    return hostname()
  }
}

/** Host and port as one text for messages: `node0:29500`, `[::1]:29500`. */
export function nameEndpoint(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${String(port)}`
}
