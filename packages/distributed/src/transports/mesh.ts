import {
  createLogger,
  Deadline,
  host,
  messageOf,
  PendingConnections,
  retry,
  tsrError,
  waitOrAbort,
} from '@tsrun/core'
import { LARGEST_QUEUE, type ByteChannel, type Dialer, type Endpoint } from './dialer.ts'
import {
  handshakeWithListener,
  handshakeWithDialer,
  isRefusal,
  accept,
  type Credentials,
} from './handshake.ts'

/** The endpoint of a rank, and the secret for dialing it. */
export interface MeshEndpoint extends Endpoint {
  /** The secret that a dialing rank needs besides the token. */
  readonly secret?: string | undefined
}

export interface MeshOptions extends Credentials {
  readonly rank: number
  /** The endpoints, indexed by rank. */
  readonly endpoints: readonly MeshEndpoint[]
  /** Milliseconds until ERR_TSR_CONNECT. */
  readonly timeout: number
  /** Ranks that this rank does not connect to, because they share memory. */
  readonly apart?: readonly number[] | undefined
  /** Milliseconds in which an accepted peer must authenticate; default: 5000. */
  readonly handshakeTime?: number
}

/**
 * Number of rejected connections to log. Later ones are not logged, so that a flood does not fill
 * the disk.
 */
const REPORTED = 10
/** Milliseconds for one handshake. When they are over, the next attempt starts. */
const ATTEMPT_TIME = 10_000

/**
 * Connects all ranks. Each rank dials lower ranks and accepts from higher ones, except the ranks in
 * `apart`. Unauthenticated connections (a wrong token, random bytes, silence) are rejected.
 *
 * @param signal - stops connecting
 * @returns the connection to each rank, undefined for this rank and those in `apart`
 * @throws ERR_TSR_CONNECT naming a peer that is unreachable or never dialed; ERR_TSR_ABORTED
 */
export async function connectMesh<Channel extends ByteChannel>(
  dialer: Dialer<Channel>,
  options: MeshOptions,
  signal?: AbortSignal,
): Promise<(Channel | undefined)[]> {
  const { rank, endpoints, timeout } = options
  const deadline = Deadline.after(timeout)
  const channels: (Channel | undefined)[] = endpoints.map(() => undefined)
  const over = new AbortController()
  const calling = AbortSignal.any(signal === undefined ? [over.signal] : [signal, over.signal])
  // Each dial adds a listener to the signal, which is not a leak.
  host.allowListeners(calling)
  const apart = new Set(options.apart)
  const peers = [...endpoints.keys()].filter((peer) => peer !== rank && !apart.has(peer))
  const below = peers.filter((peer) => peer < rank)
  const awaited = new Set(peers.filter((peer) => peer > rank))
  const calls = below.map(async (peer) => {
    channels[peer] = await callPeer(dialer, options, peer, deadline, calling)
  })
  const heard = acceptPeers(dialer, options, { awaited, channels }, over.signal)
  try {
    await waitOrAbort(Promise.all(calls), 'connecting', Deadline.never, signal)
    const hearing = 'hearing from the other ranks'
    await waitOrAbort(heard, hearing, deadline, signal).catch((cause: unknown) => {
      if (signal?.aborted === true) throw cause
      const [peer = rank] = awaited
      throw connectError(options, peer, 'it has not called', cause)
    })
  } catch (error) {
    // Close all connections, so that no other rank believes that this rank is connected.
    over.abort()
    await Promise.allSettled(calls)
    for (const channel of channels) channel?.close()
    throw error
  } finally {
    dialer.stopListening()
  }
  return channels
}

async function callPeer<Channel extends ByteChannel>(
  dialer: Dialer<Channel>,
  options: MeshOptions,
  peer: number,
  deadline: Deadline,
  signal: AbortSignal,
): Promise<Channel> {
  const attempt = async (): Promise<Channel> => {
    const dialing = dialer.dial(options.endpoints[peer]!, signal)
    const connecting = waitOrAbort(dialing, 'connecting', deadline, signal)
    const channel = await connecting.catch((error: unknown) => {
      dialing.then(
        (late) => {
          late.close()
        },
        () => undefined,
      )
      throw error
    })
    try {
      const within = Deadline.after(Math.min(ATTEMPT_TIME, deadline.remaining()))
      const authenticated = handshakeWithListener(
        channel,
        credentialsOf(options, peer),
        options.rank,
        peer,
      )
      channel.keys = await waitOrAbort(authenticated, 'handshake', within, signal)
    } catch (error) {
      channel.close()
      throw error
    }
    return channel
  }
  const isTransient = (error: unknown): boolean => !isRefusal(error) && !signal.aborted
  return await retry(attempt, { deadline, isTransient, signal }).catch((cause: unknown) => {
    const reason = messageOf(cause)
    throw connectError(options, peer, reason, cause)
  })
}

/** Resolves when each awaited rank has connected. Never resolves once `over` is aborted. */
async function acceptPeers<Channel extends ByteChannel>(
  dialer: Dialer<Channel>,
  options: MeshOptions,
  { awaited, channels }: { awaited: Set<number>; channels: (Channel | undefined)[] },
  over: AbortSignal,
): Promise<void> {
  const { rank, handshakeTime = 5000 } = options
  let refused = 0
  const unauthenticated = new PendingConnections<Channel>({
    limit: LARGEST_QUEUE,
    drop: (channel) => {
      channel.close()
    },
  })
  const accepting = new Set<number>()
  const isMissing = (): boolean => awaited.size + accepting.size > 0
  const closePending = (): void => {
    for (const channel of unauthenticated.values()) channel.close()
  }
  over.addEventListener('abort', closePending)
  if (awaited.size === 0) return
  await new Promise<void>((resolve) => {
    const authenticate = async (channel: Channel): Promise<void> => {
      const peer = await waitOrAbort(
        handshakeWithDialer(channel, credentialsOf(options, rank), rank, () => {
          unauthenticated.advance(channel)
        }),
        'handshake',
        Deadline.after(handshakeTime),
      )
      // Remove the rank at once, so that a second connection of the same rank is rejected
      // meanwhile.
      const isExpected = peer !== undefined && awaited.delete(peer.rank)
      if (!isExpected) throw new Error('not a rank that is waited for')
      const { rank: other, keys } = peer
      accepting.add(other)
      try {
        await accept(channel)
      } catch (error) {
        awaited.add(other)
        throw error
      } finally {
        accepting.delete(other)
      }
      channel.keys = keys
      channels[other] = channel
      unauthenticated.delete(channel)
      if (!isMissing()) resolve()
    }
    const listen = async (): Promise<void> => {
      while (isMissing()) {
        const channel = await dialer.accept()
        unauthenticated.add(channel, channel.from ?? '')
        void authenticate(channel)
          .catch((error: unknown) => {
            channel.close()
            if (!isMissing() || ++refused > REPORTED) return
            const reason = messageOf(error)
            createLogger('distributed').warn({ reason }, 'refused a connection to the data port')
          })
          .finally(() => unauthenticated.delete(channel))
      }
    }
    listen().catch(() => undefined)
  })
  // Open connections would keep the process alive.
  closePending()
}

function credentialsOf(options: MeshOptions, called: number): Credentials {
  const { token, purpose, protection, endpoints } = options
  const key = `${token}${endpoints[called]?.secret ?? ''}`
  return { token: key, purpose, protection }
}

function connectError(
  { rank, endpoints, timeout }: MeshOptions,
  peer: number,
  reason: string,
  cause: unknown,
): Error {
  const { host, port } = endpoints[peer]!
  const endpoint = `${host}:${port}`
  return tsrError(
    'ERR_TSR_CONNECT',
    { rank, peer, endpoint, milliseconds: timeout, reason },
    { cause },
  )
}
