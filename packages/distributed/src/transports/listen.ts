import { tsrError, type PortRange } from '@tsrun/core'

/** Where a rank listens for its peers. */
export interface ListenOptions {
  /** IP address. */
  readonly host: string
  /** Ports to take one of; undefined: the kernel picks. */
  readonly ports: PortRange | undefined
  /** For error messages. */
  readonly rank: number
}

/**
 * Listens at the first port that is free.
 *
 * @param isTaken - whether an attempt failed because somebody has the port
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
