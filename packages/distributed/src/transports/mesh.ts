import {
  clientHandshake,
  createLogger,
  Deadline,
  HELLO_BYTES,
  HELLO_START_BYTES,
  host,
  isHelloStart,
  messageOf,
  PendingConnections,
  PROOF_BYTES,
  protectionFlags,
  retry,
  serverHandshake,
  tsrError,
  waitOrAbort,
  type HandshakeRefusal,
  type Protection,
  type SessionKeys,
} from '@tsrun/core'
import { LARGEST_QUEUE, type ByteChannel, type Dialer, type Endpoint } from './dialer.ts'

interface Credentials {
  readonly token: string
  /** Identifies the job and its attempt, so that ranks of other jobs and attempts are rejected. */
  readonly purpose: string
  /** Whether the connections are encrypted; default: 'none'. */
  readonly protection?: Protection | undefined
}

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

/** Number of rejected connections to log, so that a flood does not fill the disk. */
const REPORTED = 10
/** Time limit of one handshake in milliseconds. After that, the next attempt starts. */
const ATTEMPT_TIME = 10_000

/**
 * Connects all ranks. Each rank dials lower ranks and accepts from higher ones, except the ranks in
 * `apart`. Unauthenticated connections (a wrong token, random bytes, silence) are rejected.
 *
 * @param signal - stops connecting
 * @returns the connection to each rank; undefined for this rank and the ranks in `apart`
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
  const isTransient = (error: unknown): boolean =>
    (error as { code?: unknown } | undefined)?.code !== REFUSAL && !signal.aborted
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
      // Stop awaiting the rank now, so that a second connection of the same rank is rejected.
      const isExpected = peer !== undefined && awaited.delete(peer.rank)
      if (!isExpected) throw new Error('not a rank that is waited for')
      const { rank: other, keys } = peer
      accepting.add(other)
      try {
        // Tell the authenticated peer that its connection is accepted.
        await channel.write(Uint8Array.of(ACCEPTED))
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

const ACCEPTED = 1

const REFUSAL = 'TSRUN_REFUSAL'

/** Returns a permanent error: the peer has another token or another protocol. */
function refusal(message: string): Error {
  return Object.assign(new Error(message), { code: REFUSAL })
}

/**
 * Returns the text that names both ranks. The proofs cover this text, so that a man in the middle
 * cannot redirect a connection to another rank.
 */
function partiesOf(dialer: number, listener: number): string {
  return `${dialer} to ${listener}`
}

/**
 * Authenticates a connection that this rank has dialed. Each side proves its rank and that it knows
 * the token. Rejects with an Error that says why the handshake failed.
 *
 * @returns the keys of the connection; undefined without protection
 */
async function handshakeWithListener(
  channel: ByteChannel,
  { token, purpose, protection = 'none' }: Credentials,
  rank: number,
  listener: number,
): Promise<SessionKeys | undefined> {
  const handshake = clientHandshake(token, purpose, partiesOf(rank, listener), protection)
  await channel.write(handshake.hello)
  const answer = handshake.answer(await channel.read(HELLO_BYTES))
  if ('refused' in answer) throw refusal(explain(answer.refused, protection))
  const proof = new Uint8Array(PROOF_BYTES + 4)
  proof.set(answer.proof)
  new DataView(proof.buffer).setUint32(PROOF_BYTES, rank, true)
  await channel.write(proof)
  if (!handshake.trusts(await channel.read(PROOF_BYTES))) {
    throw refusal('it fails the handshake (token)')
  }
  const [last] = await channel.read(1)
  if (last !== ACCEPTED) throw new Error('it refuses the connection')
  return handshake.keys()
}

function explain(refused: HandshakeRefusal, protection: Protection): string {
  if (refused !== 'protection') return `it fails the handshake (${refused})`
  return `it was started otherwise; this rank has ${protectionFlags[protection]}`
}

/**
 * Authenticates a connection that rank `listener` has accepted.
 *
 * @param advance - called for each step of the handshake
 * @returns the rank of the peer, and the keys of the connection (undefined without protection); or
 *   undefined if the peer is not part of the job or dialed another rank
 */
async function handshakeWithDialer(
  channel: ByteChannel,
  { token, purpose, protection }: Credentials,
  listener: number,
  advance: () => void,
) {
  const handshake = serverHandshake(token, purpose, protection)
  const start = await channel.read(HELLO_START_BYTES)
  if (!isHelloStart(start)) return undefined
  advance()
  const rest = await channel.read(HELLO_BYTES - HELLO_START_BYTES)
  const hello = handshake.answer(Uint8Array.of(...start, ...rest))
  if (hello === undefined) return undefined
  advance()
  await channel.write(hello)
  const last = await channel.read(PROOF_BYTES + 4)
  const rank = new DataView(last.buffer, last.byteOffset).getUint32(PROOF_BYTES, true)
  const parties = partiesOf(rank, listener)
  const { accepted, proof } = handshake.judge(last.subarray(0, PROOF_BYTES), parties)
  await channel.write(proof)
  return accepted ? { rank, keys: handshake.keys() } : undefined
}
