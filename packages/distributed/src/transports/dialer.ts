import { tsrError, type PortRange, type SessionKeys } from '@tsrun/core'

/** The address at which a rank listens. */
export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** A new connection, before its transport takes it over. */
export interface ByteChannel {
  /** The address of a peer that dialed this rank. */
  readonly from?: string
  /** The keys from the handshake. All later bytes are encrypted with them. */
  keys?: SessionKeys | undefined
  write(bytes: Uint8Array): Promise<void>
  /** Reads exactly `length` bytes. Rejects if the stream ends before that. */
  read(length: number): Promise<Uint8Array>
  close(): void
}

/** Listens for connections and dials peers, for one kind of transport. */
export interface Dialer<Channel extends ByteChannel> {
  readonly endpoint: Endpoint
  /** Resolves to the next connection from a peer. Rejects when `stopListening` is called. */
  accept(): Promise<Channel>
  /** Dials an endpoint. Rejects if the signal is aborted before the connection is made. */
  dial(endpoint: Endpoint, signal?: AbortSignal): Promise<Channel>
  stopListening(): void
}

/**
 * Largest number of connections in each stage of the handshake. At the limit a connection is
 * dropped, so that a flood does not lock out the ranks.
 */
export const LARGEST_QUEUE = 256

export interface ListenOptions {
  /** IP address to listen at. */
  readonly host: string
  /** The range from which to take a port. Undefined: the kernel picks a port. */
  readonly ports: PortRange | undefined
  /** Rank of this process, for error messages. */
  readonly rank: number
}

/**
 * Listens on the first free port of the range.
 *
 * @param isTaken - returns whether an attempt failed because the port is in use
 * @throws ERR_TSR_PORT_RANGE
 */
export async function listenAtFreePort<T>(
  { host, ports, rank }: ListenOptions,
  listen: (port: number) => T | Promise<T>,
  isTaken: (error: unknown) => boolean,
): Promise<T> {
  if (ports === undefined) return await listen(0)
  let cause: unknown
  for (let port = ports.first; port <= ports.last; port++) {
    try {
      return await listen(port)
    } catch (error) {
      if (!isTaken(error)) throw error
      cause = error
    }
  }
  throw tsrError('ERR_TSR_PORT_RANGE', { rank, ...ports, host }, { cause })
}
