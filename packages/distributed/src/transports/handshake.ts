import {
  clientHandshake,
  HELLO_BYTES,
  HELLO_START_BYTES,
  isHelloStart,
  PROOF_BYTES,
  protectionFlags,
  serverHandshake,
  type HandshakeRefusal,
  type Protection,
  type SessionKeys,
} from '@tsrun/core'
import type { ByteChannel } from './dialer.ts'

const ACCEPTED = 1

const REFUSAL = 'TSRUN_REFUSAL'

function refusal(message: string): Error {
  return Object.assign(new Error(message), { code: REFUSAL })
}

/** Whether a handshake failed permanently: the peer has another token or another protocol. */
export function isRefusal(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === REFUSAL
}

export interface Credentials {
  readonly token: string
  /** Identifies the job and its attempt, so that ranks of other jobs and attempts are rejected. */
  readonly purpose: string
  /** Whether the connections are encrypted; default: 'none'. */
  readonly protection?: Protection | undefined
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
export async function handshakeWithListener(
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
 * @returns the rank of the peer, and the keys of the connection, which are undefined without
 *   protection; undefined if the peer is not part of the job or dialed another rank
 */
export async function handshakeWithDialer(
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

/** Tells an authenticated peer that its connection is accepted. */
export async function accept(channel: ByteChannel): Promise<void> {
  await channel.write(Uint8Array.of(ACCEPTED))
}
