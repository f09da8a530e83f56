import {
  decode,
  encode,
  flag,
  integer,
  object,
  text,
  tsrError,
  type Of,
  type TsrError,
} from '@tsrun/core'
import { describeFingerprint, type Fingerprint } from '../operation.ts'
import { EAGER_LIMIT } from './messages/frame.ts'

const fingerprint = object({ kind: integer, root: integer, count: integer })

const disagreement = object({
  rank: integer,
  mine: fingerprint,
  peer: integer,
  theirs: fingerprint,
  /** The call sites of this rank and of the peer, if known. */
  mySite: text.optional(),
  theirSite: text.optional(),
})

/** Two world ranks that run different operations. */
type Disagreement = Of<typeof disagreement>

const failure = object({
  reason: text,
  /** Whether the whole group fails. Otherwise it fails from one operation on. */
  all: flag,
  mismatch: disagreement.optional(),
  /** Whether the sender destroyed the group after its operations completed. That is not a failure. */
  destroyed: flag.optional(),
})

/** The failure of a group, as ranks report it to each other. */
export type Fault = Of<typeof failure>

const LONGEST_REASON = 4096

export function encodeFault(fault: Fault): Uint8Array {
  return encode({ ...fault, reason: fault.reason.slice(0, LONGEST_REASON) }, EAGER_LIMIT)
}

/**
 * Decodes a peer's report. Peers are authenticated by the job's token, but the contents are still
 * checked.
 */
export function decodeFault(payload: Uint8Array): Fault {
  const fault = decode(payload, EAGER_LIMIT)
  return failure.is(fault) ? fault : { reason: 'unknown reason', all: false }
}

interface FaultContext {
  readonly group: string
  readonly sequence: number
  readonly rank: number
  readonly peer: number
  readonly operation: string
}

/**
 * Returns the error for the rank that received a fault. For a rank that is part of a mismatch, the
 * message names its own operation first.
 */
export function faultError({ reason, mismatch }: Fault, context: FaultContext): TsrError {
  const { group, sequence, rank, peer, operation } = context
  if (mismatch?.peer !== rank) {
    return tsrError('ERR_TSR_PEER_FAILED', { rank, operation, group, peer, reason })
  }
  return mismatchError(group, sequence, {
    rank,
    mine: mismatch.theirs,
    mySite: mismatch.theirSite,
    peer: mismatch.rank,
    theirs: mismatch.mine,
    theirSite: mismatch.mySite,
  })
}

/** Returns the error for the rank `disagreement.rank`. */
export function mismatchError(
  group: string,
  sequence: number,
  { rank, mine, mySite, peer, theirs, theirSite }: Disagreement,
): TsrError {
  return tsrError('ERR_TSR_MISMATCH', {
    group,
    sequence,
    rank,
    mine: describeCall(mine, mySite),
    peer,
    theirs: describeCall(theirs, theirSite),
  })
}

/** Describes a call, as in `allReduce(sum) float32[4096] (called at train.ts:12:3)`. */
function describeCall(call: Fingerprint, site: string | undefined): string {
  return site === undefined
    ? describeFingerprint(call)
    : `${describeFingerprint(call)} (called at ${site})`
}
