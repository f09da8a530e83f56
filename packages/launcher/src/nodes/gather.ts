import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { Deadline, isTsrError, tsrError } from '@tsrun/core'
import {
  addressOfInterface,
  localAddressTowards,
  nameEndpoint,
  ownAddresses,
  type ListenAddress,
  type Store,
  hostIdentity,
  isLoopback,
} from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import { loopbackHint, rendezvousTimeout, type JobStore } from './endpoint.ts'
import { keys, parse, post } from './messages.ts'
import {
  type NodePlan,
  type NumberedNode,
  type Registration,
  arrivalMessage,
  type Arrival,
  type Invitation,
} from '../protocol/nodes.ts'
import { announceWait, nameNodes } from './waiting.ts'
import { version } from '../package.ts'

interface ArrivedNode {
  /** Part of the node's key in the store, which is deleted when the node's launcher ends. */
  readonly id: string
  readonly node: NumberedNode
  readonly storeAddress: string
}

const ZERO = 'zero'

export type Members = Awaited<ReturnType<typeof openMembers>>

/**
 * Lets nodes join and leave a job. Runs on node 0. `gather` makes the plan of the first attempt, and in an
 * elastic job the plan of each later attempt.
 */
export async function openMembers(
  job: Job,
  jobStore: JobStore,
  { publish }: ListenAddress,
  { announcer, interrupts }: JobContext,
) {
  const { placement, rendezvous } = job
  const { iface, nnodes, minNodes } = placement
  const { local: store } = jobStore
  let own = iface === undefined ? '' : addressOfInterface(iface)
  // Without an interface, use the local address from which this host reaches the published endpoint.
  if (own === '' && publish !== undefined) own = await localAddressTowards(publish, rendezvous.port)
  const nodeZero: NumberedNode = { ...describeSelf(job, own), nodeRank: 0 }
  const arrived = new Map<string, ArrivedNode>()
  const ended = new AbortController()
  /** The error that prevents more nodes from joining. */
  let failure: unknown
  let current: NodePlan | undefined
  let onChange = (): void => undefined

  /** Resolves when a node has joined or left, or after the time limit. */
  const changed = (limit: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.min(limit, 2 ** 31 - 1))
      onChange = () => {
        clearTimeout(timer)
        resolve()
      }
    })

  const leave = (node: ArrivedNode): void => {
    members.onLeave(node)
    arrived.delete(node.id)
    onChange()
  }

  const freeRanks = (): number[] => {
    const taken = new Set([...arrived.values()].map(({ node }) => node.nodeRank))
    return Array.from({ length: nnodes - 1 }, (_, i) => i + 1).filter((rank) => !taken.has(rank))
  }

  const problemOf = ({ node }: ArrivedNode, isFull: boolean): string | undefined => {
    const known = new Map([
      [0, nodeZero],
      ...[...arrived.values()].map((one) => [one.node.nodeRank, one.node] as const),
    ])
    const problem = findMismatch(node, nodeZero, known)
    if (problem !== undefined || !isFull) return problem
    return `the job has its ${nnodes} nodes, and ${node.host} is one more`
  }

  const collect = async (): Promise<void> => {
    const signal = AbortSignal.any([interrupts.stop, ended.signal])
    for (;;) {
      const arrival = await nextNode(store, signal)
      const free = freeRanks()[0]
      const nodeRank = arrival.node.nodeRank ?? free ?? arrived.size + 1
      const next: ArrivedNode = { ...arrival, node: { ...arrival.node, nodeRank } }
      const problem = problemOf(next, free === undefined)
      if (problem !== undefined) {
        const error = tsrError('ERR_TSR_RENDEZVOUS_REFUSED', { problem })
        // Before the first plan, a mismatched node ends the job, because its command line is mistyped.
        if (current === undefined) throw error
        await post(store, keys.declined(next.id), error.toJSON())
        continue
      }
      arrived.set(next.id, next)
      await store.watch(keys.node(next.id), ({ value }) => {
        if (value === undefined) leave(next)
      })
      if (!(await store.check([keys.node(next.id)]))) leave(next)
      if (arrived.has(next.id)) members.onArrival(next)
      onChange()
    }
  }

  /** Describes the missing nodes. @param here - number of present nodes */
  const describeMissing = (here: number): string => {
    if (minNodes === nnodes) return nameNodes(freeRanks())
    const of = `${here} of ${minNodes} to ${nnodes} nodes are here`
    return here < minNodes ? `more nodes: ${of}` : `the last call to end: ${of}`
  }

  const plan = async (attempt: number): Promise<NodePlan> => {
    const nodes = [...arrived.values()]
    const master = publish ?? usedAddress(nodes) ?? rendezvous.host
    const zero = { ...nodeZero, address: own === '' ? master : own }
    const unreachable = findUnreachable([zero, ...nodes.map(({ node }) => node)])
    if (unreachable !== undefined) {
      const { nodeRank, host, address } = unreachable
      throw tsrError('ERR_TSR_LOOPBACK', { who: `Node ${nodeRank} (${host})`, address })
    }
    const before = current
    current = makePlan(job.identity.runId, { ...jobStore.endpoint, host: master }, [
      { id: ZERO, node: zero },
      ...nodes,
    ])
    if (before !== undefined) await post(store, keys.plan(attempt), current)
    for (const { id } of nodes) {
      if (before?.nodes.some((one) => one.id === id) === true) continue
      await post(store, keys.invitation(id), { plan: current, attempt } satisfies Invitation)
    }
    return current
  }

  const members = {
    /** All present nodes except node 0 by id, in the order of their arrival. */
    arrived: arrived as ReadonlyMap<string, ArrivedNode>,
    onArrival: (() => undefined) as (node: ArrivedNode) => void,
    /** Called when the launcher of a node has ended. */
    onLeave: (() => undefined) as (node: ArrivedNode) => void,

    /**
     * Waits until enough nodes are present, and makes a plan with them. If more may join, it waits for
     * the last-call time as well.
     *
     * @param attempt - the number of the attempt in which nodes without a plan start
     */
    async gather(attempt: number): Promise<NodePlan> {
      const waiting = announceWait(announcer, '')
      const deadline = Deadline.after(rendezvous.timeout)
      let lastCall: Deadline | undefined
      try {
        for (;;) {
          if (failure !== undefined) throw failure as Error
          const here = 1 + arrived.size
          if (here >= nnodes) break
          lastCall = here < minNodes ? undefined : (lastCall ?? Deadline.after(rendezvous.lastCall))
          if (lastCall?.expired === true) break
          const missing = describeMissing(here)
          waiting.whom = missing + loopbackHint(publish ?? '')
          await post(store, keys.missing, missing)
          if (lastCall === undefined && deadline.expired) {
            const { host, port, timeout } = rendezvous
            const endpoint = nameEndpoint(host, port)
            throw rendezvousTimeout(timeout, `${waiting.whom} did not connect to ${endpoint}`)
          }
          await changed((lastCall ?? deadline).remaining())
        }
        return await plan(attempt)
      } catch (error) {
        await post(store, keys.refused, errorForOthers(error, nodeZero)).catch(() => undefined)
        throw error
      } finally {
        waiting.end()
      }
    },

    /** Removes a lost node, although its launcher may still be running. */
    remove(id: string): void {
      arrived.delete(id)
    },

    close(): void {
      ended.abort()
    },
  }
  collect().catch((error: unknown) => {
    failure = error
    onChange()
  })
  return members
}

/** Returns the next node in the queue, but skips nodes that have left meanwhile. */
export async function nextNode(store: Store, signal: AbortSignal): Promise<Arrival> {
  for (;;) {
    const id = await store.queuePop(keys.joining, { timeout: Infinity, signal })
    // The key of a node that has left is deleted, so do not wait for the key.
    const key = keys.node(Buffer.from(id).toString())
    const node = await store.get(key, { timeout: 0, signal }).catch((error: unknown) => {
      if (isTsrError(error) && error.code === 'ERR_TSR_STORE_TIMEOUT') return undefined
      throw error
    })
    // Ignore an invalid message.
    const arrival = node && parse(node, arrivalMessage)
    if (arrival !== undefined) return arrival
  }
}

/** The address of this host that the other nodes used. */
function usedAddress(nodes: readonly ArrivedNode[]): string | undefined {
  const own = ownAddresses()
  return nodes.map(({ storeAddress }) => storeAddress).find((address) => own.includes(address))
}

/** Returns the error for the nodes that have arrived. Without a cause, it says that node 0 is leaving. */
function errorForOthers(error: unknown, { host }: Registration): unknown {
  if (isTsrError(error) && error.code !== 'ERR_TSR_ABORTED') return error.toJSON()
  const reason = 'it was stopped while the nodes came together'
  return tsrError('ERR_TSR_NODE_LOST', { node: 0, host, reason }).toJSON()
}

/** Renumbers the nodes in order without gaps, so that lost nodes leave no free numbers. */
function makePlan(
  runId: string,
  master: NodePlan['master'],
  members: readonly Pick<ArrivedNode, 'id' | 'node'>[],
): NodePlan {
  const nodes = members
    .toSorted((a, b) => a.node.nodeRank - b.node.nodeRank)
    .map(({ id, node: { nproc, host, address, role } }, nodeRank) => {
      return { id, nodeRank, nproc, host, address, role }
    })
  return { runId, master, nodes }
}

export function describeSelf(job: Job, address: string): Registration {
  const { script } = job
  const { nodeRank, nnodes, minNodes, nproc, role } = job.placement
  return {
    nodeRank,
    nnodes,
    minNodes,
    nproc,
    role,
    rdzvId: job.rendezvous.rdzvId,
    host: hostname(),
    pid: process.pid,
    identity: hostIdentity(),
    address,
    version,
    script,
    digest:
      job.program.kind === 'program'
        ? ''
        : createHash('sha256').update(readFileSync(script)).digest('hex'),
  }
}

/** The settings that must be equal on all nodes of a job. */
const common: Readonly<Record<string, (node: Registration) => string>> = {
  tsrun: (node) => node.version,
  '--nnodes': ({ minNodes, nnodes }) =>
    minNodes === nnodes ? String(nnodes) : `${minNodes}:${nnodes}`,
  '--rdzv-id': ({ rdzvId = 'none' }) => rdzvId,
}

/** Returns why a joining node does not match the nodes that have joined; undefined if it matches. */
export function findMismatch(
  newcomer: NumberedNode,
  nodeZero: Registration,
  joined: ReadonlyMap<number, Registration>,
): string | undefined {
  const { nodeRank } = newcomer
  const who = `node ${nodeRank} (${nameOf(newcomer)})`
  for (const [what, of] of Object.entries(common)) {
    const [mine, other] = [of(newcomer), of(nodeZero)]
    if (mine === other) continue
    return `${who} was started with ${what} ${mine}, and node 0 (${nodeZero.host}) with ${other}`
  }
  const twin = joined.get(nodeRank)
  if (twin !== undefined) return `${nameOf(newcomer)} and ${nameOf(twin)} are both node ${nodeRank}`
  if (newcomer.digest === nodeZero.digest) return undefined
  const [own, other] = [newcomer, nodeZero].map(({ digest }) => `${digest.slice(0, 8)}…`)
  return `${who} has a different script (${newcomer.script}, SHA-256 ${own!}) from node 0 (${nodeZero.script}, ${other!})`
}

/** A node whose ranks other hosts cannot reach; undefined if there is none. */
export function findUnreachable(nodes: readonly NumberedNode[]): NumberedNode | undefined {
  if (nodes.every(({ identity }) => identity === nodes[0]?.identity)) return undefined
  return nodes.find(({ address }) => isLoopback(address))
}

function nameOf({ host, address, pid }: Registration): string {
  return `host ${host}, ${address}, process ${pid}`
}
