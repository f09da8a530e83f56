import { networkInterfaces } from 'node:os'
import {
  addressOfInterface,
  findListenAddress,
  hostIdentity,
  isLoopback,
  localAddressTowards,
  ownAddresses,
  type Names,
} from '@tsrun/store'

it('localAddressTowards() finds the address of the interface that leads to a host', async () => {
  expect(await localAddressTowards('127.0.0.1', 1)).toBe('127.0.0.1')
  expect(ownAddresses()).toContain(await localAddressTowards('localhost', 1))
})

it('addressOfInterface() takes the name or the address of an interface', () => {
  const [name, addresses] = Object.entries(networkInterfaces())[0]!
  expect(ownAddresses()).toContain(addressOfInterface(name))
  for (const { address } of addresses ?? []) expect(addressOfInterface(address)).toBe(address)
})

it.each(['eth99', '', '203.0.113.9', 'toString'])(
  'addressOfInterface() refuses %j, and lists the existing addresses',
  (name) => {
    expect(() => addressOfInterface(name)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_INTERFACE',
        message: expect.stringContaining('127.0.0.1'),
      }),
    )
  },
)

it('isLoopback() recognizes loopback addresses', () => {
  const addresses = [
    '127.0.0.1',
    '127.0.1.1',
    '::1',
    '::ffff:127.0.0.1',
    '10.0.0.1',
    '::',
    'fe80::1',
  ]
  expect(addresses.filter(isLoopback)).toEqual(addresses.slice(0, 4))
})

it('the identity of this host stays the same', () => {
  expect(hostIdentity()).toBe(hostIdentity())
})

describe('the host name to listen on', () => {
  /** A host with two addresses, and a resolver that knows `found`. */
  const names = (...found: string[]): Names => ({
    lookup: () =>
      found.length > 0
        ? Promise.resolve(found)
        : Promise.reject(Object.assign(new Error('getaddrinfo'), { code: 'ENOTFOUND' })),
    own: () => ['127.0.0.1', '::1', '10.0.0.1', 'fd00::1'],
  })

  it.each([
    ['one address', ['10.0.0.1'], '10.0.0.1'],
    ['an address of another host first', ['fd00::99', '10.0.0.1'], '10.0.0.1'],
    ['an address of another host last', ['fd00::1', '10.0.0.99'], 'fd00::1'],
    ['the same address twice', ['10.0.0.1', '10.0.0.1'], '10.0.0.1'],
  ])('resolves to the address that belongs to this host: %s', async (_, found, listen) => {
    expect(await findListenAddress('n0', names(...found))).toEqual({ listen, publish: listen })
  })

  it.each([
    ['both families', ['fd00::1', '10.0.0.1']],
    ['loopback, as on Debian', ['127.0.1.1']],
    ['loopback of both families', ['::1', '127.0.0.1']],
  ])('resolves to all addresses of this host: %s', async (_, found) => {
    const place = { listen: '::', publish: undefined }
    expect(await findListenAddress('n0', names(...found))).toEqual(place)
  })

  it('resolves to loopback if it is localhost or a loopback address', async () => {
    const loopback = { listen: '127.0.0.1', publish: '127.0.0.1' }
    expect(await findListenAddress('127.0.0.1', names('127.0.0.1'))).toEqual(loopback)
    expect(await findListenAddress('localhost', names('127.0.0.1', '::1'))).toEqual(loopback)
  })

  it('is refused if it is unknown or belongs to another host', async () => {
    expect(await findListenAddress('n0', names())).toEqual({
      isKnown: false,
      reason: 'the name n0 is unknown (ENOTFOUND)',
    })
    expect(await findListenAddress('n0', names('fd00::99', '10.0.0.99'))).toEqual({
      isKnown: true,
      reason: 'n0 (fd00::99, 10.0.0.99) is no address of this host',
    })
  })
})
