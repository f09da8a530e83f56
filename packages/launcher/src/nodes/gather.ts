import { Deadline, isTsrError, tsrError, type TsrError } from '@tsrun/core'
import { isLoopback, ownAddresses, type Store } from '@tsrun/store'
import type { Job } from '../job/job.ts'
import type { Surroundings } from '../job/attempt.ts'
import type { HostedStore } from './endpoint.ts'
import { loopbackHint, ownAddress, type StoreAddress } from './endpoint.ts'
import { keys, parse, post } from './messages.ts'
import { makePlan, type NodePlan } from '../job/nodes.ts'
import { describeSelf, findMisfit, findUnreachable, type Registration } from './registration.ts'
import { nameNodes, Waiting } from './waiting.ts'

/** A node that has come, and the key that vanishes with it. */
export interface Present {
  readonly id: string
  readonly node: Registration
  /** Address by which it reached the store. */
  readonly storeAddress: string
}

export interface Gathered {
  readonly plan: NodePlan
  /** All but node 0. */
  readonly present: readonly Present[]
}

/**
 * Node 0: waits for all others, refuses those that do not fit, and tells all of them the plan.
 *
 * @throws ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED, ERR_TSR_LOOPBACK,
 * ERR_TSR_ABORTED
 */
export async function gatherNodes(
  job: Job,
  { local: store, endpoint }: HostedStore,
  { publish }: StoreAddress,
  { announcer, interrupts }: Surroundings,
): Promise<Gathered> {
  const { options, identity } = job
  const zero = describeSelf(job, publish === undefined ? '' : await ownAddress(options))
  const present = new Map<number, Present>()
  const waiting = new Waiting(announcer, '')
  const update = async (): Promise<number[]> => {
    const ranks = Array.from({ length: options.nnodes - 1 }, (_, i) => i + 1)
    const missing = ranks.filter((rank) => !present.has(rank))
    waiting.whom = nameNodes(missing) + loopbackHint(publish ?? '')
    await post(store, keys.missing, missing)
    return missing
  }
  const deadline = Deadline.after(options.rdzvTimeout)
  try {
    while ((await update()).length > 0) {
      const next = await nextNode(store, deadline, interrupts.stop)
      if (next === undefined) throw timeout(options.rdzvTimeout, waiting.whom, endpoint)
      const known = new Map([
        [0, zero],
        ...[...present].map(([rank, of]) => [rank, of.node] as const),
      ])
      const misfit = findMisfit(next.node, zero, known)
      if (misfit !== undefined) throw refusal(misfit)
      present.set(next.node.nodeRank, next)
      await store.watch(keys.node(next.id), ({ value }) => {
        // It left while the others were still awaited: it may come again.
        if (value !== undefined || present.get(next.node.nodeRank) !== next) return
        present.delete(next.node.nodeRank)
        void update().catch(() => undefined)
      })
    }
    const nodes = [...present.values()]
    const master = publish ?? usedAddress(nodes) ?? options.masterAddr
    const own =
      zero.address === ''
        ? { ...zero, address: options.iface === undefined ? master : await ownAddress(options) }
        : zero
    const all = [own, ...nodes.map(({ node }) => node)]
    const unreachable = findUnreachable(all, isLoopback)
    if (unreachable !== undefined) throw loopback(unreachable)
    const plan = makePlan(identity.runId, { host: master, port: endpoint.port }, all)
    await post(store, keys.plan, plan)
    return { plan, present: nodes }
  } catch (error) {
    await post(store, keys.refused, farewell(error, zero)).catch(() => undefined)
    throw error
  } finally {
    waiting.end()
  }
}

/** The next node in the queue that is still there; undefined at the deadline. */
export async function nextNode(
  store: Pick<Store, 'queuePop' | 'get'>,
  deadline: Deadline,
  signal: AbortSignal,
): Promise<Present | undefined> {
  for (;;) {
    const id = await unlessLate(
      store.queuePop(keys.joining, { timeout: deadline.remaining(), signal }),
    )
    if (id === undefined) return undefined
    // a node that has left meanwhile is not waited for
    const key = keys.node(Buffer.from(id).toString())
    const node = await unlessLate(store.get(key, { timeout: 0, signal }))
    if (node !== undefined) return parse(node) as Present
  }
}

async function unlessLate(value: Promise<Uint8Array>): Promise<Uint8Array | undefined> {
  return await value.catch((error: unknown) => {
    if (isTsrError(error) && error.code === 'ERR_TSR_STORE_TIMEOUT') return undefined
    throw error
  })
}

/** The address of this host by which the others reach it. */
function usedAddress(nodes: readonly Present[]): string | undefined {
  const own = ownAddresses()
  return nodes.map(({ storeAddress }) => storeAddress).find((address) => own.includes(address))
}

function timeout(
  milliseconds: number,
  whom: string,
  { host, port }: HostedStore['endpoint'],
): TsrError {
  const missing = `${whom} did not come to ${host}:${port}`
  return tsrError('ERR_TSR_RENDEZVOUS_TIMEOUT', { seconds: milliseconds / 1000, missing })
}

function refusal(problem: string): TsrError {
  return tsrError('ERR_TSR_RENDEZVOUS_REFUSED', { problem })
}

function loopback({ nodeRank, host, address }: Registration): TsrError {
  return tsrError('ERR_TSR_LOOPBACK', { who: `Node ${nodeRank} (${host})`, address })
}

/** What those who have come are told: the same error, or that this node is leaving. */
function farewell(error: unknown, { host }: Registration): unknown {
  if (isTsrError(error) && error.code !== 'ERR_TSR_ABORTED') return error.toJSON()
  const reason = 'it was stopped while the nodes came together'
  return tsrError('ERR_TSR_NODE_LOST', { node: 0, host, reason }).toJSON()
}
