import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { serverHandshake } from '@tsrun/core'
import { token } from './stores.ts'

/** A server at a free port that does with its sockets what a store never does. */
export async function listen(
  onSocket: (socket: Socket) => void,
): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    onSocket(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { server, port: (server.address() as { port: number }).port }
}

/** The server's side of the handshake. */
export async function accept(socket: Socket): Promise<void> {
  const handshake = serverHandshake(token, 'store')
  const [hello] = (await once(socket, 'data')) as [Buffer]
  socket.write(handshake.answer(hello)!)
  const [proof] = (await once(socket, 'data')) as [Buffer]
  socket.write(handshake.judge(proof).proof)
}
