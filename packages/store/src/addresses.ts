import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { readFileSync, readlinkSync } from 'node:fs'
import { isIP } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { tsrError } from '@tsrun/core'

/**
 * The address of the interface that leads to `host`, at which peers can reach this process. Nothing
 * is sent: connecting a UDP socket only consults the routing table.
 */
export async function localAddressTowards(host: string, port: number): Promise<string> {
  const { address, family } = await lookup(host)
  if (isLoopback(address)) return address === '::1' ? address : '127.0.0.1'
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4')
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
  const named = await lookup(hostname()).catch(() => undefined)
  if (named !== undefined && !isLoopback(named.address)) return named.address
  const other = ownAddresses().find((address) => !isLoopback(address))
  if (other !== undefined) return other
  throw tsrError('ERR_TSR_LOOPBACK', { who: 'Rank 0', address: named?.address ?? '127.0.0.1' })
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
