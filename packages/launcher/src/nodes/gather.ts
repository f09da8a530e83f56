import { Deadline, isTsrError, tsrError, type TsrError } from '@tsrun/core'
import { isLoopback, ownAddresses, type Store } from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import type { NodePlan } from '../job/nodes.ts'
import { loopbackHint, ownAddress, type JobStore, type StoreAddress } from './endpoint.ts'
import { keys, parse, post } from './messages.ts'
import {
  describeSelf,
  findMismatch,
  findUnreachable,
  type NumberedNode,
  type Registration,
} from './registration.ts'
import { nameNodes, WaitAnnouncer } from './waiting.ts'

/** A node that has arrived. */
export interface ArrivedNode {
  /** Names the key of the node, which vanishes with its launcher. */
  readonly id: string
  readonly node: NumberedNode
  /** The address at which it reached the store. */
  readonly storeAddress: string
}

/** What a node says when it arrives: it may have no number yet. */
export type Arrival = Omit<ArrivedNode, 'node'> & { readonly node: Registration }

export interface Gathered {
  readonly plan: NodePlan
  /** All nodes but node 0. */
  readonly arrived: readonly ArrivedNode[]
}

/**
 * On node 0: waits for all other nodes, refuses those that do not fit, and sends all of them the plan.
 *
 * @throws ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED, ERR_TSR_LOOPBACK,
 * ERR_TSR_ABORTED
 */
export async function gatherNodes(
  job: Job,
  { local: store, endpoint }: JobStore,
  { publish }: StoreAddress,
  { announcer, interrupts }: JobContext,
): Promise<Gathered> {
  const { options, identity } = job
  const own = describeSelf(job, publish === undefined ? '' : await ownAddress(options))
  const nodeZero = { ...own, nodeRank: 0 }
  const arrived = new Map<number, ArrivedNode>()
  const waiting = new WaitAnnouncer(announcer, '')
  const update = async (): Promise<number[]> => {
    const ranks = Array.from({ length: options.nnodes - 1 }, (_, i) => i + 1)
    const missing = ranks.filter((rank) => !arrived.has(rank))
    waiting.whom = nameNodes(missing) + loopbackHint(publish ?? '')
    await post(store, keys.missing, missing)
    return missing
  }
  const deadline = Deadline.after(options.rdzvTimeout)
  try {
    while ((await update()).length > 0) {
      const arrival = await nextNode(store, deadline, interrupts.stop)
      if (arrival === undefined) throw timeoutError(options.rdzvTimeout, waiting.whom, endpoint)
      const next = numbered(arrival, (await update())[0]!)
      const known = new Map([
        [0, nodeZero],
        ...[...arrived].map(([rank, { node }]) => [rank, node] as const),
      ])
      const problem = findMismatch(next.node, nodeZero, known)
      if (problem !== undefined) throw tsrError('ERR_TSR_RENDEZVOUS_REFUSED', { problem })
      arrived.set(next.node.nodeRank, next)
      await store.watch(keys.node(next.id), ({ value }) => {
        // A node that leaves while others are still missing may come again.
        if (value !== undefined || arrived.get(next.node.nodeRank) !== next) return
        arrived.delete(next.node.nodeRank)
        void update().catch(() => undefined)
      })
    }
    const nodes = [...arrived.values()]
    const master = publish ?? usedAddress(nodes) ?? options.masterAddr
    const complete =
      nodeZero.address === ''
        ? { ...nodeZero, address: options.iface === undefined ? master : await ownAddress(options) }
        : nodeZero
    const all = [complete, ...nodes.map(({ node }) => node)]
    const unreachable = findUnreachable(all, isLoopback)
    if (unreachable !== undefined) throw loopbackError(unreachable)
    const plan = makePlan(identity.runId, { host: master, port: endpoint.port }, all)
    for (const { id, node } of nodes) await post(store, keys.nodeRank(id), node.nodeRank)
    await post(store, keys.plan, plan)
    return { plan, arrived: nodes }
  } catch (error) {
    await post(store, keys.refused, errorForOthers(error, nodeZero)).catch(() => undefined)
    throw error
  } finally {
    waiting.end()
  }
}

/** Gives a node that has no number the first one that is free. */
function numbered({ node, ...arrival }: Arrival, free: number): ArrivedNode {
  return { ...arrival, node: { ...node, nodeRank: node.nodeRank ?? free } }
}

/** The next node in the queue that has not left again; undefined at the deadline. */
export async function nextNode(
  store: Pick<Store, 'queuePop' | 'get'>,
  deadline: Deadline,
  signal: AbortSignal,
): Promise<Arrival | undefined> {
  for (;;) {
    const id = await unlessLate(
      store.queuePop(keys.joining, { timeout: deadline.remaining(), signal }),
    )
    if (id === undefined) return undefined
    // The key of a node that has left in the meantime is gone: do not wait for it.
    const key = keys.node(Buffer.from(id).toString())
    const node = await unlessLate(store.get(key, { timeout: 0, signal }))
    if (node !== undefined) return parse(node) as Arrival
  }
}

async function unlessLate(value: Promise<Uint8Array>): Promise<Uint8Array | undefined> {
  return await value.catch((error: unknown) => {
    if (isTsrError(error) && error.code === 'ERR_TSR_STORE_TIMEOUT') return undefined
    throw error
  })
}

/** The address of this host that the other nodes have used. */
function usedAddress(nodes: readonly ArrivedNode[]): string | undefined {
  const own = ownAddresses()
  return nodes.map(({ storeAddress }) => storeAddress).find((address) => own.includes(address))
}

function timeoutError(
  milliseconds: number,
  whom: string,
  { host, port }: JobStore['endpoint'],
): TsrError {
  const missing = `${whom} did not connect to ${host}:${port}`
  return tsrError('ERR_TSR_RENDEZVOUS_TIMEOUT', { seconds: milliseconds / 1000, missing })
}

function loopbackError({ nodeRank, host, address }: NumberedNode): TsrError {
  return tsrError('ERR_TSR_LOOPBACK', { who: `Node ${nodeRank} (${host})`, address })
}

/** What the nodes that have arrived are sent: the same error, or that this node is leaving. */
function errorForOthers(error: unknown, { host }: Registration): unknown {
  if (isTsrError(error) && error.code !== 'ERR_TSR_ABORTED') return error.toJSON()
  const reason = 'it was stopped while the nodes came together'
  return tsrError('ERR_TSR_NODE_LOST', { node: 0, host, reason }).toJSON()
}

function makePlan(
  runId: string,
  master: NodePlan['master'],
  registrations: Iterable<NumberedNode>,
): NodePlan {
  const nodes = [...registrations]
    .sort((a, b) => a.nodeRank - b.nodeRank)
    .map(({ nodeRank, nproc, host, address, role }) => ({ nodeRank, nproc, host, address, role }))
  return { runId, master, nodes }
}
