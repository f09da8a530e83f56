import { tsrError, type PortRange, type SessionKeys } from '@tsrun/core'

/** Where a rank listens for the connections of its peers. */
export interface Endpoint {
  readonly host: string
  readonly port: number
}

/** A fresh connection, before its transport takes it over. */
export interface ByteChannel {
  /** The peer's address, if the peer dialed. */
  readonly from?: string
  /** The keys that the handshake has agreed on, which encrypt what follows. */
  keys?: SessionKeys | undefined
  write(bytes: Uint8Array): Promise<void>
  /** Exactly `length` bytes. Rejects when the stream ends before. */
  read(length: number): Promise<Uint8Array>
  close(): void
}

/** How a transport listens for connections and makes them. */
export interface Dialer<Channel extends ByteChannel> {
  /** Where it listens. */
  readonly endpoint: Endpoint
  /** The next connection of a peer; rejects when `stopListening` is called. */
  accept(): Promise<Channel>
  /** Rejects when the signal is aborted before the connection is made. */
  dial(endpoint: Endpoint, signal?: AbortSignal): Promise<Channel>
  stopListening(): void
}

/** Most connections in each stage of the handshake, beyond which the oldest are dropped: a flood locks nobody out. */
export const LARGEST_QUEUE = 256

/** Where a rank listens for its peers. */
export interface ListenOptions {
  /** IP address. */
  readonly host: string
  /** The range of ports to take one of; undefined: the kernel picks one. */
  readonly ports: PortRange | undefined
  /** For error messages. */
  readonly rank: number
}

/**
 * Listens at the first port that is free.
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
