import type { Socket } from 'node:net'
import { Deadline, isTsrError, retry, tsrError } from '@tsrun/core'
import { argumentError, checkDuration, checkToken } from './arguments.ts'
import { Calls } from './calls.ts'
import { Connection } from './connection.ts'
import { dial, reasonOf } from './dial.ts'
import { nameEndpoint } from './endpoint.ts'
import { LinkedStore } from './linked-store.ts'
import { DEFAULT_TIMEOUT } from './memory-store.ts'
import { decodeServerMessage, encodeMessage } from './protocol.ts'
import type { Store } from './store.ts'

/** A failed attempt to reach the store; there will be another. */
export interface StoreProgress {
  readonly endpoint: string
  readonly attempt: number
  /** Milliseconds since the first attempt. */
  readonly elapsed: number
  /** For example 'connect ECONNREFUSED 10.0.0.1:29500'. */
  readonly reason: string
}

export interface StoreConnectOptions {
  readonly host: string
  readonly port: number
  /** The secret of the job. */
  readonly token: string
  /**
   * Milliseconds until connecting is given up, and the time-out of calls that give none; default
   * 300 000.
   */
  readonly timeout?: number
  /** Ends connecting; the store, once connected, is not affected. */
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: StoreProgress) => void
}

/**
 * Connects to the store of a job; tries again while nobody listens there yet. An idle connection
 * does not keep the process alive. A connection that is lost is not made again.
 *
 * @throws ERR_TSR_STORE_UNREACHABLE, ERR_TSR_STORE_AUTHENTICATION, ERR_TSR_ABORTED,
 * ERR_TSR_ARGUMENT
 */
export async function connectStore(options: StoreConnectOptions): Promise<Store> {
  const { host, port, token, timeout = DEFAULT_TIMEOUT, signal, onProgress } = options
  checkToken(token)
  checkDuration('timeout', timeout)
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    throw argumentError('port', port, 'an integer from 1 to 65535')
  }
  const endpoint = nameEndpoint(host, port)
  const deadline = Deadline.after(timeout)
  const started = performance.now()
  try {
    const socket = await retry(async () => await dial({ ...options, endpoint, deadline }), {
      deadline,
      isTransient: (error) => signal?.aborted !== true && !isTsrError(error),
      onFailure: (error, attempt) => {
        const elapsed = performance.now() - started
        onProgress?.({ endpoint, attempt, elapsed, reason: reasonOf(error) })
      },
      ...(signal && { signal }),
    })
    return storeOver(socket, endpoint, timeout)
  } catch (error) {
    if (signal?.aborted === true) {
      const cause: unknown = signal.reason
      throw tsrError('ERR_TSR_ABORTED', { what: `connecting to ${endpoint}` }, { cause })
    }
    if (isTsrError(error)) throw error
    const reason = `${reasonOf(error)} (tried for ${String(timeout)} ms)`
    throw tsrError('ERR_TSR_STORE_UNREACHABLE', { endpoint, reason }, { cause: error })
  }
}

function storeOver(socket: Socket, endpoint: string, timeout: number): Store {
  const connection = new Connection(
    socket,
    {
      onFrame: (frame) => {
        calls.receive(decodeServerMessage(frame))
      },
      onClose: (reason) => {
        calls.lost(reason)
      },
    },
    false,
  )
  const calls = new Calls(
    {
      endpoint,
      send: (message) => {
        connection.send(encodeMessage('The request', message))
      },
      setBusy: (busy) => {
        connection.setBusy(busy)
      },
      close: async () => {
        connection.destroy('close() was called')
        await connection.closed
      },
    },
    timeout,
  )
  connection.setBusy(false)
  connection.start()
  return new LinkedStore(calls)
}
