import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { listenAtFreePort, type ListenOptions } from '../listen.ts'
import { LARGEST_QUEUE, type Dialer, type Endpoint } from '../mesh.ts'
import { SocketChannel } from './socket-channel.ts'

/** Listens with node:net. */
export async function openNodeDialer(options: ListenOptions): Promise<Dialer<SocketChannel>> {
  /** Callers that nobody has greeted yet; nothing of them is read before. */
  const callers: Socket[] = []
  let wake: (() => void) | undefined
  let listening = true
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (socket) => {
    socket.on('error', () => undefined)
    callers.push(socket)
    if (callers.length > LARGEST_QUEUE) callers.shift()?.destroy()
    wake?.()
  })
  const { host } = options
  await listenAtFreePort(
    options,
    async (port) => {
      server.listen(port, host)
      await once(server, 'listening')
    },
    (error) => (error as NodeJS.ErrnoException).code === 'EADDRINUSE',
  )
  const { port } = server.address() as AddressInfo
  return {
    endpoint: { host, port },
    async accept() {
      for (;;) {
        const caller = callers.shift()
        if (caller !== undefined) return new SocketChannel(caller)
        if (!listening) throw new Error('stopped listening')
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    },
    async dial(to: Endpoint, signal?: AbortSignal) {
      const socket = connect({ host: to.host, port: to.port, noDelay: true })
      const giveUp = (): void => {
        socket.destroy(new Error('given up'))
      }
      signal?.addEventListener('abort', giveUp)
      try {
        await once(socket, 'connect')
      } finally {
        signal?.removeEventListener('abort', giveUp)
      }
      return new SocketChannel(socket)
    },
    stopListening() {
      listening = false
      server.close()
      for (const caller of callers.splice(0)) caller.destroy()
      wake?.()
    },
  }
}
