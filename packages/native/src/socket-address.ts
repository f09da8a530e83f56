import { isIPv4, isIPv6 } from 'node:net'
import { tsrError } from '@tsrun/core/errors'

export const AF_INET = 2
export const AF_INET6 = 10
/** Size in bytes of an IPv6 socket address. IPv4 addresses are smaller. */
export const SOCKET_ADDRESS_BYTES = 28

/** A numeric IP address and a port. */
export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** Encodes an endpoint as `struct sockaddr_in` or `sockaddr_in6`. */
export function encodeSocketAddress({ host, port }: Endpoint): Uint8Array {
  // Test for IPv4, because the first test for IPv6 in a process takes milliseconds.
  const isShort = isIPv4(host)
  const bytes = new Uint8Array(isShort ? 16 : SOCKET_ADDRESS_BYTES)
  const view = new DataView(bytes.buffer)
  view.setUint16(2, port)
  if (isShort) {
    view.setUint16(0, AF_INET, true)
    bytes.set(host.split('.').map(Number), 4)
  } else if (isIPv6(host)) {
    view.setUint16(0, AF_INET6, true)
    expandIPv6(host).forEach((group, i) => {
      view.setUint16(8 + 2 * i, group)
    })
  } else {
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'host', value: host, expected: 'an IP address' })
  }
  return bytes
}

export function decodeSocketAddress(bytes: Uint8Array): Endpoint {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const port = view.getUint16(2)
  if (view.getUint16(0, true) === AF_INET) return { host: bytes.subarray(4, 8).join('.'), port }
  const groups = Array.from({ length: 8 }, (_, i) => view.getUint16(8 + 2 * i).toString(16))
  return { host: groups.join(':'), port }
}

function expandIPv6(host: string): number[] {
  // A URL writes the last groups in hexadecimal, even if they were given as an IPv4 address.
  const { hostname } = new URL(`http://[${host.split('%', 1)[0]!}]`)
  const [head = '', tail = ''] = hostname.slice(1, -1).split('::')
  const parse = (part: string): number[] =>
    part === '' ? [] : part.split(':').map((group) => parseInt(group, 16))
  const before = parse(head)
  const after = parse(tail)
  return [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after]
}
