import fc from 'fast-check'
import { AF_INET6, decodeSocketAddress, encodeSocketAddress } from '../internals/native.ts'

const port = fc.nat(65535)

describe('socket addresses', () => {
  it('of IPv4 are decoded as they were encoded', () => {
    fc.assert(
      fc.property(fc.ipV4(), port, (host, number) => {
        const bytes = encodeSocketAddress({ host, port: number })
        expect(bytes).toHaveLength(16)
        expect(decodeSocketAddress(bytes)).toEqual({ host, port: number })
      }),
    )
  })

  it('of IPv6 are decoded as the same address', () => {
    fc.assert(
      fc.property(fc.ipV6(), port, (host, number) => {
        const bytes = encodeSocketAddress({ host, port: number })
        const endpoint = decodeSocketAddress(bytes)
        expect(bytes).toHaveLength(28)
        expect(endpoint.port).toBe(number)
        // URL writes every IPv6 address in its one canonical form (RFC 5952).
        expect(new URL(`http://[${endpoint.host}]`).host).toBe(new URL(`http://[${host}]`).host)
      }),
    )
  })

  it.each([
    ['::', '0:0:0:0:0:0:0:0'],
    ['::1', '0:0:0:0:0:0:0:1'],
    ['fe80::1', 'fe80:0:0:0:0:0:0:1'],
    ['1::', '1:0:0:0:0:0:0:0'],
    ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8'],
    ['::ffff:192.0.2.33', '0:0:0:0:0:ffff:c000:221'],
    ['fe80::1%eth0', 'fe80:0:0:0:0:0:0:1'],
  ])('write out %s in full', (host, expanded) => {
    expect(decodeSocketAddress(encodeSocketAddress({ host, port: 1 })).host).toBe(expanded)
  })

  it('have the layout that the kernel expects', () => {
    expect([...encodeSocketAddress({ host: '127.0.0.1', port: 258 })]).toEqual([
      2, 0, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
    ])
    expect(encodeSocketAddress({ host: '::1', port: 258 })[0]).toBe(AF_INET6)
  })

  it.each(['localhost', '', '1.2.3', '1.2.3.256', 'g::1', '1:2'])('refuse %j', (host) => {
    expect(() => encodeSocketAddress({ host, port: 1 })).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }) as Error,
    )
  })
})
