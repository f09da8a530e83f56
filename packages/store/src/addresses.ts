import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { readFileSync, readlinkSync } from 'node:fs'
import { isIP } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { tsrError, waitOrAbort, type Deadline } from '@tsrun/core'

/** Resolves names, and lists the addresses of this host. Tests can replace it. */
export interface Names {
  /** Returns all addresses of a host, the preferred one first, or throws the resolver's error. */
  lookup(host: string): Promise<readonly string[]>
  /** Returns the addresses of this host's interfaces. */
  own(): readonly string[]
}

/** The resolver and the interfaces of this host. */
export const systemNames: Names = {
  lookup: async (host) => (await lookup(host, { all: true })).map(({ address }) => address),
  own: ownAddresses,
}

/** The address at which a host listens, and the address that it publishes. */
export interface ListenAddress {
  /** An address of this host, or `::` for all IPv6 and IPv4 addresses. */
  readonly listen: string
  /** The address for other hosts. Undefined: each host resolves the name itself. */
  readonly publish: string | undefined
}

/** A name that does not resolve to this host now. The DNS entry of a new host may appear later. */
export interface OtherHost {
  /** Whether the name resolves to any host. */
  readonly isKnown: boolean
  readonly reason: string
}

/**
 * Returns where this host listens if `host` is its name or address. At least one address of the name must
 * belong to this host. The other addresses may be of an address family (IPv4 or IPv6) that this host does
 * not use. On Debian, a host's name resolves to a loopback address (127.0.1.1) on that host, so other hosts
 * need another address.
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
  /**
   * True if an option says that the name belongs to this host. Otherwise the wait ends as soon as
   * the name resolves to another host.
   */
  readonly isSaid: boolean
  readonly deadline: Deadline
  /** Describes the wait in the time-out error. */
  readonly what: string
  readonly signal?: AbortSignal | undefined
  readonly names?: Names
  /** Called after each failed lookup. It throws to end the wait. */
  readonly onMissing: (reason: string) => void
}

/** Milliseconds between lookups of a name that does not resolve to this host yet. */
const LOOK_AGAIN = 1000

/**
 * Waits until `host` is a name or an address of this host. A new host may start before its name
 * resolves, or the name may still resolve to a previous host.
 *
 * @returns undefined if the name resolves to another host
 * @throws ERR_TSR_TIMEOUT, ERR_TSR_ABORTED, errors of `onMissing`
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

/** Whether a name means the local host on all hosts, like `localhost`. */
export function isLocalhost(name: string): boolean {
  return /^localhost\b/i.test(name)
}

/**
 * Returns the address of the interface that routes to `host`. Peers can reach this process at that
 * address. Nothing is sent: connecting a UDP socket only consults the routing table.
 */
export async function localAddressTowards(host: string, port: number): Promise<string> {
  let failure: unknown
  for (const address of await systemNames.lookup(host)) {
    try {
      return await addressTowards(address, port)
    } catch (error) {
      // There is no route, for example to an IPv6 address from an IPv4-only host.
      failure = error
    }
  }
  throw failure
}

async function addressTowards(address: string, port: number) {
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
 * Resolves `--iface` to an IP address: an address of this host as given, or the first address of an
 * interface, IPv4 before IPv6.
 * @throws ERR_TSR_INTERFACE naming the existing interfaces
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
 * Returns an address at which other hosts can reach this host: the address of `iface` if given,
 * otherwise the address to which the host's name resolves, otherwise any address.
 * @throws ERR_TSR_INTERFACE, ERR_TSR_LOOPBACK if this host has only loopback addresses
 */
export async function reachableAddress(iface = ''): Promise<string> {
  if (iface !== '') return addressOfInterface(iface)
  const own = ownAddresses().filter((address) => !isLoopback(address))
  const named = await systemNames.lookup(hostname()).catch(() => [])
  const address = named.find((each) => own.includes(each)) ?? own[0]
  if (address !== undefined) return address
  throw tsrError('ERR_TSR_LOOPBACK', { who: 'Rank 0', address: named[0] ?? '127.0.0.1' })
}

/** Whether other hosts may reach a listener at `host`. */
export async function isReachable(host: string): Promise<boolean> {
  // An unknown name counts as unreachable, because listening there fails.
  const addresses = await systemNames.lookup(host).catch(() => [])
  return addresses
    .flatMap((address) => (['0.0.0.0', '::'].includes(address) ? ownAddresses() : address))
    .some((address) => !isLoopback(address))
}

/**
 * Returns the addresses of this host's interfaces. All of 127.0.0.0/8 belong to this host, too, but
 * are not listed. Returns none if the system does not let this process list them.
 */
export function ownAddresses(): string[] {
  try {
    return Object.values(networkInterfaces()).flatMap((of = []) => of.map(({ address }) => address))
  } catch {
    return []
  }
}

/** Whether the IP address can be reached only from this host. */
export function isLoopback(address: string): boolean {
  return /^(::ffff:)?127\.\d+\.\d+\.\d+$/.test(address) || address === '::1'
}

/**
 * Returns a text that is equal for processes that share a network, including loopback: the boot ID of the
 * kernel and the network namespace, or the host name if /proc is missing.
 */
export function hostIdentity(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
    return `${boot} ${readlinkSync('/proc/self/ns/net')}`
  } catch {
    return hostname()
  }
}

/** Formats host and port for messages: `node0:29500`, `[::1]:29500`. */
export function nameEndpoint(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}
