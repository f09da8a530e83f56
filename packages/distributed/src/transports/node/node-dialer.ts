import { once } from 'node:events'
import { connect, createServer, type AddressInfo } from 'node:net'
import type { Dialer, Endpoint } from '../connect/mesh.ts'
import { SocketChannel } from './socket-channel.ts'

/** Listens on `host` with node:net; the kernel picks the port. */
export async function openNodeDialer(host: string): Promise<Dialer<SocketChannel>> {
  const callers: SocketChannel[] = []
  let wake: (() => void) | undefined
  let listening = true
  const server = createServer({ noDelay: true }, (socket) => {
    callers.push(new SocketChannel(socket))
    wake?.()
  })
  server.listen(0, host)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    endpoint: { host, port },
    async accept() {
      for (;;) {
        const caller = callers.shift()
        if (caller !== undefined) return caller
        if (!listening) throw new Error('stopped listening')
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    },
    async dial(to: Endpoint) {
      const socket = connect({ host: to.host, port: to.port, noDelay: true })
      await once(socket, 'connect')
      return new SocketChannel(socket)
    },
    stopListening() {
      listening = false
      server.close()
      wake?.()
    },
  }
}
