import {
  choice,
  count,
  isTsrError,
  object,
  protectionFlags,
  text,
  tsrError,
  type Of,
  type RankEnvironment,
} from '@tsrun/core'
import {
  isLocalhost,
  isLoopback,
  localAddressTowards,
  reachableAddress,
  type Store,
  type StoreCallOptions,
} from '@tsrun/store'
import { checkSameTuning } from './tuning-file.ts'
import type { ConnectOptions } from '../../runners/open-transport.ts'
import { readPublished } from '../membership/published.ts'
import { presenceKey } from '../membership/world.ts'
import type { InitSettings, Joining } from './options.ts'
import { agreeOnSharing, checkRefusals } from './sharing.ts'

/**
 * Returns the address at which the other ranks can reach this rank. It is the address of the
 * interface that leads to the store. Debian maps a host's own name to a loopback address
 * (127.0.1.1), which other hosts cannot reach. In that case, another address is returned.
 *
 * @param known - the local address of the connection to the store, if there is one
 */
export async function addressForPeers(
  { masterAddr, masterPort }: Pick<RankEnvironment, 'masterAddr' | 'masterPort'>,
  known?: string,
): Promise<string> {
  const address = known ?? (await localAddressTowards(masterAddr, masterPort))
  const isMeant = isLoopback(masterAddr) || isLocalhost(masterAddr)
  return isLoopback(address) && !isMeant ? await reachableAddress() : address
}

/** Removes the endpoint of an earlier process of this rank. Must precede `announcePresence`. */
export async function forgetEndpoint(store: Store, rank: number): Promise<void> {
  await store.delete(endpointKey(rank))
}

/**
 * Returns the key that a rank sets once it has joined the world. From then on, other ranks notice
 * its loss.
 */
export function joinedKey(rank: number): string {
  return `joined/${rank}`
}

function endpointKey(rank: number): string {
  return `endpoint/${rank}`
}

const published = object({
  host: text,
  port: count(),
  /** Identity of the host, from `hostIdentity`. */
  on: text,
  segment: object({
    host: text,
    pid: count(),
    fd: count(),
    bytes: count(),
    nonce: text,
    bell: object({ fd: count(), inode: count() }),
  }).optional(),
  /** Why the rank cannot join. */
  refusal: text.optional(),
  tuning: object({ source: text, digest: text }),
  protection: choice('none', 'encrypted'),
  /** Secret for dialing, besides the token. With TLS, only members can read it. */
  secret: text.optional(),
})

type Published = Of<typeof published>

/** Milliseconds for which a rank that refuses to join waits for the others to refuse. */
const REFUSAL_TIMEOUT = 10_000

/**
 * Publishes this rank's endpoint, waits for the endpoints of all other ranks, and agrees with them
 * on which ranks share memory.
 *
 * @throws ERR_TSR_TIMEOUT naming the missing ranks, ERR_TSR_TRANSPORT_UNAVAILABLE,
 *   ERR_TSR_LOOPBACK, ERR_TSR_TUNING, ERR_TSR_PROTECTION
 */
export async function exchangeEndpoints(
  { rank, worldSize, token, environment, sharedMemory }: InitSettings,
  { store, generation, timeout, signal, incarnation }: Joining,
  own: Published,
): Promise<ConnectOptions> {
  await store.set(endpointKey(rank), JSON.stringify(own))
  const wait = { timeout, signal }
  const peers = Array.from({ length: worldSize }, (_, peer) => peer)
  // Wait for presence too: a rank that has ended since publishing its endpoint no longer listens.
  const keys = [...peers.map(endpointKey), ...peers.map(presenceKey)]
  const texts = await store.multiGet(keys, wait).catch(async (cause: unknown) => {
    if (!isTsrError(cause) || cause.code !== 'ERR_TSR_STORE_TIMEOUT') throw cause
    const absent = await missingRanks(store, peers, endpointKey)
    const ranks = absent.length > 0 ? absent : await missingRanks(store, peers, presenceKey)
    const missing = ranks.join(', ')
    const what = `rank ${rank}: waiting for ${ranks.length === 1 ? 'rank' : 'ranks'} ${missing} to join the job`
    throw tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: timeout, missing }, { cause })
  })
  const endpoints = peers.map((peer) => readPublished(texts[peer], published, `rank ${peer}`))
  try {
    checkRefusals(endpoints)
    refuseLoopback(endpoints)
    refuseOtherProtection(endpoints)
    const tunings = endpoints.map(({ tuning }) => tuning)
    checkSameTuning(rank, tunings)
  } catch (error) {
    await meetRefusingRanks(store, rank, peers, wait)
    throw error
  }
  const segments = endpoints.map(({ segment }) => segment)
  const isRequired = sharedMemory === 'required'
  const sharing = await agreeOnSharing(store, { rank, segments, isRequired, wait })
  await store.set(joinedKey(rank), incarnation)
  const job = `${environment?.runId ?? ''} ${environment?.restartCount ?? 0}`
  const purpose = `data ${job}${generation === 0 ? '' : ` generation ${generation}`}`
  const place = environment && {
    rank: environment.localRank,
    size: environment.localWorldSize,
  }
  const { protection } = own
  return { token, purpose, protection, rank, endpoints, timeout, sharing, place }
}

/**
 * Waits until all ranks have refused to join. All ranks refuse for the same reason, once they have
 * read all endpoints. A rank that exits early would delete its presence key. A slower rank would
 * then wait for the key in vain.
 */
async function meetRefusingRanks(
  store: Store,
  rank: number,
  peers: readonly number[],
  wait: StoreCallOptions & { readonly timeout: number },
): Promise<void> {
  const keyOf = (peer: number): string => `refused/${peer}`
  try {
    await store.set(keyOf(rank), '')
    const timeout = Math.min(wait.timeout, REFUSAL_TIMEOUT)
    await store.multiGet(peers.map(keyOf), { ...wait, timeout })
  } catch {
    // Ignore errors: the reason for the refusal matters more than a rank that has ended meanwhile.
  }
}

/** @throws ERR_TSR_PROTECTION if the ranks' protection differs */
function refuseOtherProtection(endpoints: readonly Published[]): void {
  const flagsOf = (rank: number): string => protectionFlags[endpoints[rank]!.protection]
  const rank = endpoints.findIndex(({ protection }) => protection !== endpoints[0]?.protection)
  if (rank < 0) return
  const facts = { rank, theirs: flagsOf(rank), other: 0, ours: flagsOf(0) }
  throw tsrError('ERR_TSR_PROTECTION', facts)
}

/** @throws ERR_TSR_LOOPBACK if a rank publishes an address that other hosts cannot reach */
function refuseLoopback(endpoints: readonly Published[]): void {
  if (endpoints.every(({ on }) => on === endpoints[0]?.on)) return
  const rank = endpoints.findIndex(({ host }) => isLoopback(host))
  if (rank < 0) return
  const address = endpoints[rank]!.host
  throw tsrError('ERR_TSR_LOOPBACK', { who: `Rank ${rank}`, address })
}

async function missingRanks(
  store: Store,
  peers: readonly number[],
  keyOf: (peer: number) => string,
): Promise<number[]> {
  const present = await Promise.all(peers.map((peer) => store.check([keyOf(peer)])))
  return peers.filter((peer) => present[peer] !== true)
}
