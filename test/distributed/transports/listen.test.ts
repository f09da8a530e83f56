import { createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import {
  openNodeDialer,
  openTcpDialer,
  type Dialer,
  type ByteChannel,
  type ListenOptions,
} from '../../internals/distributed/transports.ts'

const host = '127.0.0.1'

/** Ports `[first, last]`, the first one taken and the last one free, and how to release them. */
async function halfTakenRange(): Promise<{ first: number; last: number; close: () => void }> {
  for (;;) {
    const taken = createServer().listen(0, host)
    await once(taken, 'listening')
    const first = (taken.address() as AddressInfo).port
    const next = createServer().listen(Math.min(first + 1, 65_535), host)
    const isFree = await once(next, 'listening').then(
      () => true,
      () => false,
    )
    next.close()
    if (isFree) return { first, last: first + 1, close: () => taken.close() }
    taken.close()
  }
}

const openers: [string, (options: ListenOptions) => Promise<Dialer<ByteChannel>>][] = [
  ['tcp', openTcpDialer],
  ['node', openNodeDialer],
]

describe.each(openers)('the transport %s with a range of ports', (_, open) => {
  it('binds the first free port, and fails if all are taken', async () => {
    const { first, last, close } = await halfTakenRange()
    const options = { host, ports: { first, last }, rank: 3 }
    const opened = await open(options)
    try {
      expect(opened.endpoint).toEqual({ host, port: last })
      await expect(open(options)).rejects.toMatchObject({
        code: 'ERR_TSR_PORT_RANGE',
        facts: { rank: 3, first, last, host },
      })
    } finally {
      opened.stopListening()
      close()
    }
  })
})
