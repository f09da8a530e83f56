import {
  CLIENT_HELLO_BYTES,
  CLIENT_PROOF_BYTES,
  clientHandshake,
  SERVER_HELLO_BYTES,
  serverHandshake,
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
}

/**
 * Greets the rank that was called: both sides prove that they know the token, then the caller names
 * its rank. Rejects with an Error whose message says why.
 */
export async function greetCalled(
  channel: ByteChannel,
  { token, purpose }: Credentials,
  rank: number,
): Promise<void> {
  const handshake = clientHandshake(token, purpose)
  await channel.write(handshake.hello)
  const answer = handshake.answer(await channel.read(SERVER_HELLO_BYTES))
  if ('refused' in answer) throw refusal(`it fails the handshake (${answer.refused})`)
  const last = new Uint8Array(CLIENT_PROOF_BYTES + 4)
  last.set(answer.proof)
  new DataView(last.buffer).setUint32(CLIENT_PROOF_BYTES, rank, true)
  await channel.write(last)
  const [welcome] = await channel.read(1)
  if (welcome !== WELCOME) throw new Error('it refuses the connection')
}

/** Greets a caller; resolves to its rank, or to undefined when it does not belong to the job. */
export async function greetCaller(
  channel: ByteChannel,
  { token, purpose }: Credentials,
): Promise<number | undefined> {
  const handshake = serverHandshake(token, purpose)
  const hello = handshake.answer(await channel.read(CLIENT_HELLO_BYTES))
  if (hello === undefined) return undefined
  await channel.write(hello)
  const last = await channel.read(CLIENT_PROOF_BYTES + 4)
  if (!handshake.accepts(last.subarray(0, CLIENT_PROOF_BYTES))) return undefined
  return new DataView(last.buffer, last.byteOffset).getUint32(CLIENT_PROOF_BYTES, true)
}

/** Tells the caller that it is accepted. */
export async function welcome(channel: ByteChannel): Promise<void> {
  await channel.write(Uint8Array.of(WELCOME))
}
