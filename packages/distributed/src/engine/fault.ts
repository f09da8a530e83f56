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
  /** Where they were called, where that is known. */
  mySite: text.optional(),
  theirSite: text.optional(),
})

/** Two ranks of the world that run different operations. */
export type Disagreement = Of<typeof disagreement>

/** Human-readable: `allReduce(sum) float32[4096] (called at train.ts:12:3)`. */
export function describeCall(call: Fingerprint, site: string | undefined): string {
  return site === undefined
    ? describeFingerprint(call)
    : `${describeFingerprint(call)} (called at ${site})`
}

/** Why a group fails, as one rank tells another, which passes it on. */
export interface Fault {
  readonly reason: string
  /** The whole group fails, and not only from one operation on. */
  readonly all: boolean
  readonly mismatch?: Disagreement
  /** Not a failure: the sender has destroyed the group, and had finished all that it called. */
  readonly destroyed?: boolean
}

const LONGEST_REASON = 4096

export function encodeFault(fault: Fault): Uint8Array {
  return encode({ ...fault, reason: fault.reason.slice(0, LONGEST_REASON) }, EAGER_LIMIT)
}

/** Peers have proven that they know the job's token, but the shape is checked all the same. */
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

/** The error on the rank that is told. A rank that is part of a mismatch sees it from its side. */
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
