import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { clientHandshake, encode } from '@tsrun/core'

export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** A plain socket to the store, for what a well-behaved client never does. */
export async function openSocket(endpoint: Endpoint): Promise<Socket> {
  const socket = createConnection({ ...endpoint, noDelay: true })
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  return socket
}

/** A plain socket that has proven the token. */
export async function openProven(endpoint: Endpoint, token: string): Promise<Socket> {
  const socket = await openSocket(endpoint)
  const handshake = clientHandshake(token, 'store')
  socket.write(handshake.hello)
  const [hello] = (await once(socket, 'data')) as [Buffer]
  const answer = handshake.answer(hello)
  if (!('proof' in answer)) throw new Error(answer.refused)
  socket.write(answer.proof)
  const [proof] = (await once(socket, 'data')) as [Buffer]
  if (!handshake.trusts(proof)) throw new Error('the server does not know the token')
  return socket
}

/** A whole frame around `message`. */
export function frame(message: unknown): Buffer {
  const payload = encode(message)
  const header = Buffer.alloc(4)
  header.writeUInt32LE(payload.byteLength)
  return Buffer.concat([header, payload])
}

/** Resolves when the other side has ended the connection, however it did. */
export async function ended(socket: Socket): Promise<void> {
  socket.resume()
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve))
}

/** Lets the event loop turn until `condition` holds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`never came: ${String(condition)}`)
    await new Promise((resolve) => setImmediate(resolve))
  }
}
