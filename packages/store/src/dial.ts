import { createConnection, type Socket } from 'node:net'
import { tsrError, type Deadline, type HandshakeRefusal } from '@tsrun/core'
import { greetServer } from './handshake.ts'

/** Longest time one attempt to connect may take, in milliseconds. */
const ATTEMPT_TIMEOUT = 10_000

export interface DialOptions {
  readonly host: string
  readonly port: number
  readonly token: string
  /** Host and port, for error messages. */
  readonly endpoint: string
  readonly deadline: Deadline
  readonly signal?: AbortSignal
}

/**
 * One attempt to connect: a socket on which both sides have proven the token. Fails with an error
 * of tsrun where another attempt would fail as well.
 */
export async function dial(options: DialOptions): Promise<Socket> {
  const { host, port, token, endpoint, deadline, signal } = options
  signal?.throwIfAborted()
  const socket = createConnection({
    host,
    port,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: 10_000,
  })
  const limit = Math.min(ATTEMPT_TIMEOUT, deadline.remaining())
  const timer = setTimeout(() => socket.destroy(new Error('no answer')), limit)
  const abort = (): void => {
    socket.destroy(new Error('aborted'))
  }
  signal?.addEventListener('abort', abort)
  socket.on('error', () => undefined)
  socket.on('connect', () => {
    // A port of the ephemeral range that nobody listens at can connect to itself.
    if (socket.localPort === port && socket.localAddress === socket.remoteAddress) {
      socket.destroy(new Error('nobody listens'))
    }
  })
  try {
    const refusal = await greetServer(socket, token)
    if (refusal !== undefined) throw refusalError(refusal, endpoint)
    return socket
  } catch (error) {
    socket.destroy()
    throw error
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
  }
}

function refusalError(refusal: HandshakeRefusal, endpoint: string): Error {
  if (refusal === 'token') return tsrError('ERR_TSR_STORE_AUTHENTICATION', { endpoint })
  const reason =
    refusal === 'version'
      ? 'the store there is of another version of tsrun'
      : 'what answers there is no store of tsrun'
  return tsrError('ERR_TSR_STORE_UNREACHABLE', { endpoint, reason })
}

export function reasonOf(error: unknown): string {
  // A name with several addresses fails with one error for each and no message of its own.
  if (typeof error === 'object' && error !== null && 'errors' in error) {
    return (error.errors as unknown[]).map(reasonOf).join(', ')
  }
  return error instanceof Error ? error.message : String(error)
}
