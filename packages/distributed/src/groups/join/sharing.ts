import {
  count,
  createLogger,
  formatRanks,
  list,
  messageOf,
  object,
  text,
  tsrError,
  type Of,
} from '@tsrun/core'
import { openAgain } from '@tsrun/native'
import type { Store, StoreCallOptions } from '@tsrun/store'
import { closeSegment, type Sharing } from '../../transports/shared-memory/neighbours.ts'
import { openSegment, type SegmentAddress } from '../../transports/shared-memory/segment.ts'
import { readPublished } from '../membership/published.ts'

/** The shared-memory segments of all ranks, as this rank knows them. */
export interface SegmentSurvey {
  readonly rank: number
  /** The segment of each rank, indexed by rank; undefined if the rank offers no segment. */
  readonly segments: readonly (SegmentAddress | undefined)[]
  /**
   * Whether all ranks of this host must share memory. Otherwise, ranks that cannot share
   * memory use tcp.
   */
  readonly isRequired: boolean
  readonly wait: StoreCallOptions
}

const report = object({
  /** Ranks of the same host whose segments this rank cannot open. */
  lacks: list(count()),
  /** Why this rank cannot join. Published, so that the other ranks do not wait for it. */
  refusal: text.optional(),
})

type Report = Of<typeof report>

/**
 * Opens the segments of the other ranks of this host. All ranks call this and agree on which ranks
 * share memory. Two ranks share memory if each could open the other's segment.
 *
 * @returns undefined when no rank shares memory with another
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE on all ranks, if any rank requires memory that cannot be shared
 */
export async function agreeOnSharing(
  store: Store,
  { rank, segments, isRequired, wait }: SegmentSurvey,
): Promise<Sharing | undefined> {
  let problem = ''
  const lacks: number[] = []
  const hosts = segments.map((segment) => segment?.host)
  const opened = segments.map((segment, peer) => {
    if (peer === rank || hosts[peer] !== hosts[rank] || segment === undefined) return undefined
    try {
      return openSegment(segment)
    } catch (error) {
      lacks.push(peer)
      problem ||= messageOf(error)
      return undefined
    }
  })
  const release = (peer: number): void => {
    const segment = opened[peer]
    if (segment !== undefined) closeSegment(segment)
    opened[peer] = undefined
  }
  try {
    const reason = `rank ${rank} cannot open the memory of ${formatRanks(lacks)}: ${problem}`
    const isShort = lacks.length > 0
    if (isShort && !isRequired) warnWithoutSharing(reason)
    const own: Report = { lacks, refusal: isShort && isRequired ? reason : undefined }
    const keyOf = (peer: number): string => `sharing/${peer}`
    await store.set(keyOf(rank), JSON.stringify(own))
    const keys = segments.map((_, peer) => keyOf(peer))
    const texts = await store.multiGet(keys, wait)
    const reports = texts.map((bytes, peer) => readPublished(bytes, report, `rank ${peer}`))
    checkRefusals(reports)
    const neighbours = neighboursOf(hosts, reports)
    const shared = new Set(neighbours[rank])
    for (const peer of opened.keys()) if (!shared.has(peer)) release(peer)
    if (neighbours.every((peers) => peers.length === 0)) return undefined
    const bell = segments[rank]?.bell
    return { neighbours, segments: opened, bell: bell && openAgain(bell.fd) }
  } catch (error) {
    for (const peer of opened.keys()) release(peer)
    throw error
  }
}

/** @throws ERR_TSR_TRANSPORT_UNAVAILABLE if a rank refuses to join without shared memory */
export function checkRefusals(ranks: readonly { readonly refusal?: string | undefined }[]): void {
  const reason = ranks.find(({ refusal }) => refusal !== undefined)?.refusal
  if (reason === undefined) return
  throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: 'shared-memory', reason })
}

export function warnWithoutSharing(reason: string): void {
  createLogger('distributed').warn({ reason }, 'no shared memory: tcp serves within this host')
}

function neighboursOf(
  hosts: readonly (string | undefined)[],
  reports: readonly Report[],
): number[][] {
  const lacks = reports.map((report) => new Set(report.lacks))
  return hosts.map((host, a) =>
    [...hosts.keys()].filter(
      (b) =>
        a !== b &&
        host !== undefined &&
        hosts[b] === host &&
        !lacks[a]!.has(b) &&
        !lacks[b]!.has(a),
    ),
  )
}
