import type { Socket } from 'node:net'
import {
  CLIENT_HELLO_BYTES,
  CLIENT_PROOF_BYTES,
  clientHandshake,
  SERVER_HELLO_BYTES,
  serverHandshake,
  type HandshakeRefusal,
} from '@tsrun/core'

const PURPOSE = 'store'

/** Proves the token to the server at the other end and has it proven; undefined: both did. */
export async function greetServer(
  socket: Socket,
  token: string,
): Promise<HandshakeRefusal | undefined> {
  const handshake = clientHandshake(token, PURPOSE)
  socket.write(handshake.hello)
  const answer = handshake.answer(await readExactly(socket, SERVER_HELLO_BYTES))
  if ('refused' in answer) return answer.refused
  socket.write(answer.proof)
  return undefined
}

/** Whether the client at the other end proves the token; nothing it sent before that is decoded. */
export async function greetClient(socket: Socket, token: string): Promise<boolean> {
  const handshake = serverHandshake(token, PURPOSE)
  const hello = handshake.answer(await readExactly(socket, CLIENT_HELLO_BYTES))
  if (hello === undefined) return false
  socket.write(hello)
  return handshake.accepts(await readExactly(socket, CLIENT_PROOF_BYTES))
}

/** Takes `length` bytes and leaves what follows in the socket; rejects when it ends before. */
async function readExactly(socket: Socket, length: number): Promise<Uint8Array> {
  return await new Promise((resolve, reject) => {
    const read = (): void => {
      const bytes = socket.read(length) as Buffer | null
      if (bytes?.byteLength !== length) return
      finish()
      resolve(bytes)
    }
    const fail = (error?: Error): void => {
      finish()
      reject(error ?? new Error('the connection ended during the handshake'))
    }
    const end = (): void => {
      fail()
    }
    const finish = (): void => {
      socket.off('readable', read).off('error', fail).off('end', end).off('close', end)
    }
    socket.on('readable', read).on('error', fail).on('end', end).on('close', end)
    read()
  })
}
