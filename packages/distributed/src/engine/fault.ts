import { decode, encode, tsrError, type TsrError } from '@tsrun/core'
import { EAGER_LIMIT } from './engine-memory.ts'
import { describeFingerprint, type Fingerprint } from './operation.ts'

/** Why an operation cannot finish, as one rank tells another. */
export type Fault =
  | {
      readonly kind: 'mismatch'
      /** What the sender of the fault runs. */
      readonly mine: Fingerprint
      readonly theirs: Fingerprint
    }
  | {
      readonly kind: 'failed'
      readonly reason: string
      /** Not one operation: all of the group. */
      readonly all: boolean
    }

const LONGEST_REASON = 4096

export function encodeFault(fault: Fault): Uint8Array {
  const short =
    fault.kind === 'failed' ? { ...fault, reason: fault.reason.slice(0, LONGEST_REASON) } : fault
  return encode(short, EAGER_LIMIT)
}

/** Peers have proven the job's token, but the shape is checked all the same. */
export function decodeFault(payload: Uint8Array): Fault {
  const fault = decode(payload, EAGER_LIMIT) as Partial<Record<string, unknown>>
  const { kind, mine, theirs, reason, all } = fault
  if (kind === 'mismatch' && isFingerprint(mine) && isFingerprint(theirs)) {
    return { kind, mine, theirs }
  }
  return {
    kind: 'failed',
    reason: typeof reason === 'string' ? reason : 'unknown reason',
    all: all === true,
  }
}

export interface FaultContext {
  readonly group: string
  readonly sequence: number
  readonly rank: number
  readonly peer: number
  readonly operation: string
}

/** The error on the rank that is told. */
export function faultError(fault: Fault, context: FaultContext): TsrError {
  const { group, sequence, rank, peer, operation } = context
  if (fault.kind === 'mismatch') {
    return tsrError('ERR_TSR_MISMATCH', {
      group,
      sequence,
      rank,
      mine: describeFingerprint(fault.theirs),
      peer,
      theirs: describeFingerprint(fault.mine),
    })
  }
  return tsrError('ERR_TSR_PEER_FAILED', { rank, operation, group, peer, reason: fault.reason })
}

function isFingerprint(value: unknown): value is Fingerprint {
  return (
    typeof value === 'object' &&
    value !== null &&
    ['kind', 'root', 'count'].every(
      (field) => typeof (value as Record<string, unknown>)[field] === 'number',
    )
  )
}
