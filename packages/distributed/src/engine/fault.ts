import {
  decode,
  encode,
  integer,
  isObject,
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
export type Disagreement = Of<typeof disagreement>

/** Describes a call, as in `allReduce(sum) float32[4096] (called at train.ts:12:3)`. */
export function describeCall(call: Fingerprint, site: string | undefined): string {
  return site === undefined
    ? describeFingerprint(call)
    : `${describeFingerprint(call)} (called at ${site})`
}

/** The failure of a group, as ranks report it to each other. */
export interface Fault {
  readonly reason: string
  /** Whether the whole group fails. Otherwise it fails from one operation on. */
  readonly all: boolean
  readonly mismatch?: Disagreement
  /**
   * The sender has destroyed the group after all its operations completed. This is not a failure.
   */
  readonly destroyed?: boolean
}

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
  const { reason, all, mismatch, destroyed } = isObject(fault) ? fault : {}
  return {
    reason: typeof reason === 'string' ? reason : 'unknown reason',
    all: all === true,
    ...(destroyed === true ? { destroyed } : {}),
    ...(disagreement.is(mismatch) ? { mismatch } : {}),
  }
}

export interface FaultContext {
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
  return tsrError('ERR_TSR_MISMATCH', {
    group,
    sequence,
    rank,
    mine: describeCall(mismatch.theirs, mismatch.theirSite),
    peer: mismatch.rank,
    theirs: describeCall(mismatch.mine, mismatch.mySite),
  })
}
