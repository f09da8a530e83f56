import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import {
  anything,
  callback,
  codeOf,
  count,
  Deadline,
  declareOptions,
  isTsrError,
  messageOf,
  retry,
  filled,
  tsrError,
  type HandshakeRefusal,
} from '@tsrun/core'
import { nameEndpoint } from './addresses.ts'
import { greetServer } from './admission.ts'
import { durationRule, tlsRule, tokenRule, toTls } from './arguments.ts'
import { DEFAULT_TIMEOUT, linkedStore, throwIfAborted } from './calls.ts'
import { openConnection } from './connection.ts'
import { decodeServerMessage, encodeRequest } from './protocol.ts'
import {
  isOtherToken,
  isPlainPeer,
  isTlsError,
  secureClient,
  type StoreTls,
} from './secure-sockets.ts'
import type { Store } from './store.ts'

/** Milliseconds for one attempt to connect. */
const ATTEMPT_TIMEOUT = 10_000
/** Milliseconds after which the next address of the name is tried in parallel. */
const ADDRESS_TIMEOUT = 1000

/** Options of `connectStore`. */
export interface StoreConnectOptions {
  readonly host: string
  readonly port: number
  readonly token: string
  /** How the store encrypts its connections, as in `StoreServerOptions`. Default: no encryption. */
  readonly tls?: StoreTls | false | undefined
  /** Milliseconds to keep trying to connect, and the default time-out of calls. Default: 300 000. */
  readonly timeout?: number | undefined
  /** Aborts connecting. Has no effect once the store is connected. */
  readonly signal?: AbortSignal | undefined
  /** Called before each retry with the reason, for example 'connect ECONNREFUSED 10.0.0.1:29500'. */
  readonly onRetry?: (reason: string) => void
}

/** A store over a connection, with the addresses of both ends. A host may have several addresses. */
export interface ConnectedStore extends Store {
  readonly localAddress: string
  readonly remoteAddress: string
}

const readOptions = declareOptions({
  host: filled(),
  port: count({ from: 1, to: 65535 }),
  token: tokenRule,
  tls: tlsRule,
  timeout: durationRule.default(DEFAULT_TIMEOUT),
  signal: anything<AbortSignal>(),
  onRetry: callback<(reason: string) => void>().optional(),
})

/**
 * Connects to the store of a job, and retries until it listens. An idle connection does not keep the
 * process alive. A lost connection is not restored.
 *
 * @throws ERR_TSR_STORE_UNREACHABLE, ERR_TSR_STORE_AUTHENTICATION, ERR_TSR_STORE_PROTECTION,
 *   ERR_TSR_STORE_TLS, ERR_TSR_ABORTED, ERR_TSR_ARGUMENT
 */
export async function connectStore(given: StoreConnectOptions): Promise<ConnectedStore> {
  const options = readOptions(given)
  const { host, port, timeout, signal, onRetry } = options
  const tls = toTls(options.tls, options.token)
  const endpoint = nameEndpoint(host, port)
  const deadline = Deadline.after(timeout)
  try {
    const socket = await retry(async () => await dial(options, tls, deadline), {
      deadline,
      isTransient: (error) => signal?.aborted !== true && !isTsrError(error) && !isDenied(error),
      onFailure: (error) => {
        onRetry?.(reasonOf(error))
      },
      signal,
    })
    const { localAddress = host, remoteAddress = host } = socket
    return { ...storeOver(socket, endpoint, timeout), localAddress, remoteAddress }
  } catch (error) {
    throwIfAborted(`connecting to ${endpoint}`, signal)
    if (isTsrError(error) || isDenied(error)) throw error
    const reason = `${reasonOf(error)} (tried for ${timeout} ms)`
    throw tsrError('ERR_TSR_STORE_UNREACHABLE', { endpoint, reason }, { cause: error })
  }
}

function storeOver(socket: Socket, endpoint: string, timeout: number): Store {
  const connection = openConnection(
    socket,
    {
      onFrame: (frame) => {
        linked.receive(decodeServerMessage(frame))
      },
      onClose: (reason) => {
        linked.lost(reason)
      },
    },
    false,
  )
  const linked = linkedStore(
    {
      endpoint,
      send: (message) => {
        connection.send(encodeRequest(message))
      },
      setBusy: connection.setBusy,
      close: async () => {
        connection.destroy('close() was called')
        await connection.closed
      },
    },
    timeout,
  )
  connection.setBusy(false)
  connection.start()
  return linked.store
}

/**
 * Makes one attempt to connect. Returns a socket on which both sides have proven the token. Throws an
 * error of tsrun if a retry would fail as well.
 */
async function dial(
  { host, port, token, signal }: ReturnType<typeof readOptions>,
  tls: StoreTls | undefined,
  deadline: Deadline,
): Promise<Socket> {
  const endpoint = nameEndpoint(host, port)
  signal?.throwIfAborted()
  const socket = createConnection({
    host,
    port,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: 10_000,
    // Try all addresses of the name, because one address family may be unreachable.
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_TIMEOUT,
  })
  const limit = Math.min(ATTEMPT_TIMEOUT, deadline.remaining())
  const timer = setTimeout(() => socket.destroy(new Error('no answer')), limit)
  const abort = () => {
    socket.destroy(new Error('aborted'))
  }
  signal?.addEventListener('abort', abort)
  socket.on('error', () => undefined)
  socket.on('connect', () => {
    // Reject a connection to itself, which is possible if nothing listens at an ephemeral port.
    if (socket.localPort === port && socket.localAddress === socket.remoteAddress) {
      socket.destroy(new Error('nobody listens'))
    }
  })
  try {
    const spoken = tls === undefined ? socket : await encrypt(socket, tls, token, endpoint)
    const refusal = await greetServer(spoken, token)
    if (refusal !== undefined) throw refusalError(refusal, endpoint)
    return spoken
  } catch (error) {
    socket.destroy()
    throw error
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
  }
}

async function encrypt(
  socket: Socket,
  tls: StoreTls,
  token: string,
  endpoint: string,
): Promise<Socket> {
  try {
    if (socket.connecting) await once(socket, 'connect')
    const secure = await secureClient(socket, tls, token)
    secure.on('error', () => undefined)
    return secure
  } catch (cause) {
    if (isPlainPeer(cause)) throw protectionError(endpoint, false, cause)
    if (tls === true && isOtherToken(cause)) {
      throw tsrError('ERR_TSR_STORE_AUTHENTICATION', { endpoint }, { cause })
    }
    if (!isTlsError(cause)) throw cause
    throw tsrError('ERR_TSR_STORE_TLS', { endpoint, reason: reasonOf(cause) }, { cause })
  }
}

/** @param isEncrypted - whether the store encrypts its connections */
function protectionError(endpoint: string, isEncrypted: boolean, cause?: unknown) {
  const [theirs, ours] = isEncrypted
    ? ['encrypts its connections', 'does not']
    : ['does not encrypt its connections', 'does']
  return tsrError('ERR_TSR_STORE_PROTECTION', { endpoint, theirs, ours }, { cause })
}

function refusalError(refusal: HandshakeRefusal, endpoint: string) {
  if (refusal === 'token') return tsrError('ERR_TSR_STORE_AUTHENTICATION', { endpoint })
  if (refusal === 'protection') return protectionError(endpoint, true)
  if (refusal === 'certificate') {
    const reason = 'it does not accept the certificate of this process'
    return tsrError('ERR_TSR_STORE_TLS', { endpoint, reason })
  }
  const reason =
    refusal === 'version'
      ? 'the store there belongs to another version of tsrun'
      : 'what answers there is not a store of tsrun'
  return tsrError('ERR_TSR_STORE_UNREACHABLE', { endpoint, reason })
}

/** Whether Node's permission model forbids the connection. The message names the missing flag. */
function isDenied(error: unknown) {
  return codeOf(error) === 'ERR_ACCESS_DENIED'
}

function reasonOf(error: unknown): string {
  // The error for a name with several addresses is an AggregateError without a message.
  if (typeof error === 'object' && error !== null && 'errors' in error) {
    return (error.errors as unknown[]).map(reasonOf).join(', ')
  }
  return messageOf(error)
}
