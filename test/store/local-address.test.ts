import { networkInterfaces } from 'node:os'
import {
  addressOfInterface,
  hostIdentity,
  isLoopback,
  localAddressTowards,
  ownAddresses,
} from '@tsrun/store'

it('finds the address of the interface that leads to a host', async () => {
  expect(await localAddressTowards('127.0.0.1', 1)).toBe('127.0.0.1')
  expect(ownAddresses()).toContain(await localAddressTowards('localhost', 1))
})

it('takes an interface by its name, or by its address', () => {
  const [name, addresses] = Object.entries(networkInterfaces())[0]!
  expect(ownAddresses()).toContain(addressOfInterface(name))
  for (const { address } of addresses ?? []) expect(addressOfInterface(address)).toBe(address)
})

it.each(['eth99', '', '203.0.113.9', 'toString'])('refuses %j, naming what there is', (name) => {
  expect(() => addressOfInterface(name)).toThrow(
    expect.objectContaining({
      code: 'ERR_TSR_INTERFACE',
      message: expect.stringContaining('127.0.0.1'),
    }),
  )
})

it('knows loopback addresses', () => {
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

it('gives this host the same identity again', () => {
  expect(hostIdentity()).toBe(hostIdentity())
})
