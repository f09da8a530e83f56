import {
  clientHandshake,
  HELLO_BYTES,
  PROOF_BYTES,
  protectionFlags,
  serverHandshake,
  type HandshakeRefusal,
  type Protection,
  type SessionKeys,
} from '@tsrun/core'
import type { ByteChannel } from './dialer.ts'

/** The last byte of a greeting: the connection is accepted. */
const WELCOME = 1

const REFUSAL = 'TSRUN_REFUSAL'

function refusal(message: string): Error {
  return Object.assign(new Error(message), { code: REFUSAL })
}

/** Whether a greeting failed for good, because of another token or another protocol. */
export function isRefusal(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === REFUSAL
}

export interface Credentials {
  readonly token: string
  /** Names the job and its attempt, so that a rank of another one is refused. */
  readonly purpose: string
  /** Whether the connections are encrypted; default: 'none'. */
  readonly protection?: Protection
}

/** What the proofs cover: without it, somebody between two ranks could lead a call to a third one. */
function partiesOf(caller: number, called: number): string {
  return `${caller} to ${called}`
}

/**
 * Greets the rank that was called: both sides prove that they know the token, and who they are. Rejects
 * with an Error whose message says why.
 *
 * @returns the keys of the connection; undefined without protection
 */
export async function greetCalled(
  channel: ByteChannel,
  { token, purpose, protection = 'none' }: Credentials,
  rank: number,
  called: number,
): Promise<SessionKeys | undefined> {
  const handshake = clientHandshake(token, purpose, partiesOf(rank, called), protection)
  await channel.write(handshake.hello)
  const answer = handshake.answer(await channel.read(HELLO_BYTES))
  if ('refused' in answer) throw refusal(explain(answer.refused, protection))
  const last = new Uint8Array(PROOF_BYTES + 4)
  last.set(answer.proof)
  new DataView(last.buffer).setUint32(PROOF_BYTES, rank, true)
  await channel.write(last)
  if (!handshake.trusts(await channel.read(PROOF_BYTES))) {
    throw refusal('it fails the handshake (token)')
  }
  const [welcome] = await channel.read(1)
  if (welcome !== WELCOME) throw new Error('it refuses the connection')
  return handshake.keys()
}

function explain(refused: HandshakeRefusal, protection: Protection): string {
  if (refused !== 'protection') return `it fails the handshake (${refused})`
  return `it was started otherwise; this rank has ${protectionFlags[protection]}`
}

/** A rank that has proven itself. */
export interface Caller {
  readonly rank: number
  /** The keys of the connection; undefined without protection. */
  readonly keys: SessionKeys | undefined
}

/**
 * Greets a caller of rank `called`.
 *
 * @param onHello - called once the caller has said that it speaks the protocol
 * @returns undefined when it does not belong to the job, or meant another rank
 */
export async function greetCaller(
  channel: ByteChannel,
  { token, purpose, protection }: Credentials,
  called: number,
  onHello: () => void,
): Promise<Caller | undefined> {
  const handshake = serverHandshake(token, purpose, protection)
  const hello = handshake.answer(await channel.read(HELLO_BYTES))
  if (hello === undefined) return undefined
  onHello()
  await channel.write(hello)
  const last = await channel.read(PROOF_BYTES + 4)
  const rank = new DataView(last.buffer, last.byteOffset).getUint32(PROOF_BYTES, true)
  const parties = partiesOf(rank, called)
  const { accepted, proof } = handshake.judge(last.subarray(0, PROOF_BYTES), parties)
  await channel.write(proof)
  return accepted ? { rank, keys: handshake.keys() } : undefined
}

/** Tells the caller that it is accepted. */
export async function welcome(channel: ByteChannel): Promise<void> {
  await channel.write(Uint8Array.of(WELCOME))
}
