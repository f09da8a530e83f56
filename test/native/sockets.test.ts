import { networkInterfaces } from 'node:os'
import {
  acceptTcp,
  addressOf,
  closeNative,
  connectError,
  connectTcp,
  divertSocket,
  EAGAIN,
  EADDRINUSE,
  ECONNREFUSED,
  ECONNRESET,
  EPIPE,
  listenTcp,
  pollFds,
  POLLFD_BYTES,
  POLLIN,
  POLLOUT,
  receiveBytes,
  sendBytes,
  tuneTcp,
} from '@tsrun/native'
import { describeNative, expectNothingLeftOpen } from './support.ts'
import { needing } from '../needs.ts'

const LIMIT = 10_000
const loopback = { host: '127.0.0.1', port: 0 }
const hasIPv6 = Object.values(networkInterfaces()).some((addresses) =>
  addresses?.some(({ address }) => address === '::1'),
)

describeNative('the native socket calls', () => {
  const open: number[] = []
  const keep = (fd: number): number => {
    open.push(fd)
    return fd
  }
  afterEach(() => {
    open.splice(0).forEach(closeNative)
  })

  /** What of `events` holds for the socket, within the limit. */
  function waitFor(fd: number, events: number): number {
    const pollfd = new DataView(new ArrayBuffer(POLLFD_BYTES))
    pollfd.setInt32(0, fd, true)
    pollfd.setInt16(4, events, true)
    pollFds(addressOf(pollfd), 1, LIMIT)
    return pollfd.getInt16(6, true)
  }

  function connectPair(host = '127.0.0.1'): { client: number; server: number } {
    const listener = listenTcp({ host, port: 0 })
    keep(listener.fd)
    const client = keep(connectTcp(listener.endpoint))
    expect(waitFor(client, POLLOUT) & POLLOUT).toBe(POLLOUT)
    expect(connectError(client)).toBe(0)
    waitFor(listener.fd, POLLIN)
    const server = keep(acceptTcp(listener.fd))
    expect(server).toBeGreaterThanOrEqual(0)
    return { client, server }
  }

  /** Sends all of `data` from one end to the other, in whatever portions they go. */
  function transfer(from: number, to: number, data: Uint8Array): Uint8Array {
    const received = new Uint8Array(data.length)
    const [source, target] = [addressOf(data), addressOf(received)]
    let sent = 0
    let got = 0
    while (got < data.length) {
      if (sent < data.length) {
        const taken = sendBytes(from, source + sent, data.length - sent, false)
        if (taken >= 0) sent += taken
        else expect(taken).toBe(-EAGAIN)
      }
      const come = receiveBytes(to, target + got, data.length - got)
      if (come === -EAGAIN) waitFor(to, POLLIN)
      else expect(come).toBeGreaterThan(0)
      got += Math.max(0, come)
    }
    return received
  }

  it('bind a free port and return it', () => {
    const { fd, endpoint } = listenTcp(loopback)
    keep(fd)
    expect(endpoint.host).toBe('127.0.0.1')
    expect(endpoint.port).toBeGreaterThan(0)
    expect(acceptTcp(fd)).toBe(-1)
  })

  it('carry any bytes both ways', () => {
    const { client, server } = connectPair()
    tuneTcp(client, 30_000)
    tuneTcp(server, 30_000)
    const data = Uint8Array.from({ length: 8 * 1024 * 1024 }, (_, i) => (i * 2654435761) >>> 24)
    expect(Buffer.compare(transfer(client, server, data), data)).toBe(0)
    expect(Buffer.compare(transfer(server, client, data), data)).toBe(0)
  })

  it('send data announced as incomplete together with the following data', () => {
    const { client, server } = connectPair()
    const data = Uint8Array.of(1, 2, 3, 4)
    expect(sendBytes(client, addressOf(data), 2, true)).toBe(2)
    expect(sendBytes(client, addressOf(data) + 2, 2, false)).toBe(2)
    waitFor(server, POLLIN)
    const received = new Uint8Array(8)
    expect(receiveBytes(server, addressOf(received), 8)).toBe(4)
    expect([...received.subarray(0, 4)]).toEqual([1, 2, 3, 4])
  })

  it('can divert a connection through another descriptor without loss', () => {
    const { client, server } = connectPair()
    const [before, after] = [Uint8Array.of(1, 2), Uint8Array.of(3, 4, 5)]
    expect(sendBytes(client, addressOf(before), 2, false)).toBe(2)
    const { inner, outer } = divertSocket(client)
    keep(inner)
    keep(outer)
    // what the descriptor sends from now on is read from `inner`
    expect(transfer(client, inner, after)).toEqual(after)
    expect(transfer(outer, server, Uint8Array.of(6))).toEqual(Uint8Array.of(1))
    expect(transfer(inner, client, before)).toEqual(before)
    expect(transfer(server, outer, after)).toEqual(after)
  })

  it('never block', () => {
    const { client, server } = connectPair()
    const data = new Uint8Array(64 * 1024)
    expect(receiveBytes(server, addressOf(data), 1)).toBe(-EAGAIN)
    let taken = 0
    while (taken >= 0) taken = sendBytes(client, addressOf(data), data.length, false)
    expect(taken).toBe(-EAGAIN)
  })

  it('distinguish the end of a stream from an empty one', () => {
    const { client, server } = connectPair()
    const byte = new Uint8Array(1)
    closeNative(open.splice(open.indexOf(client), 1)[0]!)
    expect(waitFor(server, POLLIN) & POLLIN).toBe(POLLIN)
    expect(receiveBytes(server, addressOf(byte), 1)).toBe(0)
  })

  it('fail a send to a closed peer with an error, not a signal', () => {
    const { client, server } = connectPair()
    closeNative(open.splice(open.indexOf(server), 1)[0]!)
    const data = new Uint8Array(1024)
    const errors: number[] = []
    while (errors.length < 2) {
      waitFor(client, POLLOUT)
      const sent = sendBytes(client, addressOf(data), data.length, false)
      if (sent < 0) errors.push(-sent)
    }
    expect([EPIPE, ECONNRESET]).toContain(errors[0])
    expect(errors[1]).toBe(EPIPE)
  })

  it('report that no process listens', () => {
    const { fd, endpoint } = listenTcp({ host: '127.83.12.1', port: 0 })
    closeNative(fd)
    const client = keep(connectTcp(endpoint))
    waitFor(client, POLLOUT)
    expect(connectError(client)).toBe(ECONNREFUSED)
  })

  it('fail with the error number if a port is taken, and leave nothing open', () => {
    const { fd, endpoint } = listenTcp(loopback)
    keep(fd)
    expectNothingLeftOpen(() => {
      expect(() => listenTcp(endpoint)).toThrow(
        expect.objectContaining({
          code: 'ERR_TSR_SYSTEM_CALL',
          facts: { call: 'bind', errno: EADDRINUSE, description: 'EADDRINUSE' },
        }) as Error,
      )
    })
  })

  it('accept IP addresses but refuse host names, and leave nothing open', () => {
    const refused = expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }) as Error
    for (const call of [listenTcp, connectTcp]) {
      expectNothingLeftOpen(() => {
        expect(() => call({ host: 'localhost', port: 80 })).toThrow(refused)
      })
    }
  })

  needing(hasIPv6, '::1').it('speaks IPv6', () => {
    const { client, server } = connectPair('::1')
    const data = Uint8Array.of(1, 2, 3)
    expect(transfer(client, server, data)).toEqual(data)
  })
})
