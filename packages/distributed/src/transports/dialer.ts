import { tsrError, type PortRange, type SessionKeys } from '@tsrun/core'

/** The address at which a rank listens. */
export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** A new connection, before its transport takes it over. */
export interface ByteChannel {
  /** The peer's address, if the peer dialed. */
  readonly from?: string
  /** The keys from the handshake, which encrypt all later bytes. */
  keys?: SessionKeys | undefined
  write(bytes: Uint8Array): Promise<void>
  /** Reads exactly `length` bytes. Rejects if the stream ends earlier. */
  read(length: number): Promise<Uint8Array>
  close(): void
}

/** Listens for connections and dials them, for one kind of transport. */
export interface Dialer<Channel extends ByteChannel> {
  readonly endpoint: Endpoint
  /** Resolves to the next connection from a peer. Rejects when `stopListening` is called. */
  accept(): Promise<Channel>
  /** Rejects if the signal is aborted before the connection is made. */
  dial(endpoint: Endpoint, signal?: AbortSignal): Promise<Channel>
  stopListening(): void
}

/**
 * Largest number of connections in each stage of the handshake. Above it, the oldest is dropped, so
 * that a flood locks nobody out.
 */
export const LARGEST_QUEUE = 256

export interface ListenOptions {
  /** IP address. */
  readonly host: string
  /** The range from which to take a port; undefined: the kernel picks one. */
  readonly ports: PortRange | undefined
  /** Named in errors. */
  readonly rank: number
}

/**
 * Listens on the first free port of the range.
 *
 * @param isTaken - whether an attempt failed because the port is in use
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
