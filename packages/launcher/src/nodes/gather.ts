import { Deadline, isTsrError, tsrError, type TsrError } from '@tsrun/core'
import {
  addressOfInterface,
  isLoopback,
  localAddressTowards,
  nameEndpoint,
  ownAddresses,
  type ListenAddress,
  type Store,
} from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import { loopbackHint, rendezvousTimeout, type JobStore } from './endpoint.ts'
import { keys, parse, post } from './messages.ts'
import { describeSelf, findMismatch, findUnreachable } from './registration.ts'
import {
  type NodePlan,
  type NumberedNode,
  type Registration,
  arrivalMessage,
  type Arrival,
  type Invitation,
} from '../protocol/nodes.ts'
import { nameNodes, WaitAnnouncer } from './waiting.ts'

/** A node that has arrived. */
export interface ArrivedNode {
  /** Part of the node's key in the store, which is deleted when the node's launcher ends. */
  readonly id: string
  readonly node: NumberedNode
  /** The address at which the node reached the store. */
  readonly storeAddress: string
}

const ZERO = 'zero'

/**
 * The nodes of a job on node 0, as they join and leave. `gather` makes the plan of the first attempt,
 * and in an elastic job the plan of each later attempt.
 */
export class Members {
  /** All present nodes except node 0 by id, in the order of their arrival. */
  readonly arrived = new Map<string, ArrivedNode>()
  onArrival: (node: ArrivedNode) => void = () => undefined
  /** Called when the launcher of a node has ended. */
  onLeave: (node: ArrivedNode) => void = () => undefined
  readonly #job: Job
  readonly #jobStore: JobStore
  readonly #publish: string | undefined
  readonly #nodeZero: NumberedNode
  readonly #context: JobContext
  readonly #ended = new AbortController()
  /** Why no more nodes can arrive. */
  #failure: unknown
  #plan: NodePlan | undefined
  #changed: () => void = () => undefined

  private constructor(
    job: Job,
    jobStore: JobStore,
    publish: string | undefined,
    nodeZero: NumberedNode,
    context: JobContext,
  ) {
    this.#job = job
    this.#jobStore = jobStore
    this.#publish = publish
    this.#nodeZero = nodeZero
    this.#context = context
    this.#collect().catch((error: unknown) => {
      this.#failure = error
      this.#changed()
    })
  }

  /** Starts to accept nodes. */
  static async open(
    job: Job,
    jobStore: JobStore,
    { publish }: ListenAddress,
    context: JobContext,
  ): Promise<Members> {
    const { iface } = job.placement
    let address = iface === undefined ? '' : addressOfInterface(iface)
    // Otherwise, the address is derived from the one that the other nodes use.
    if (address === '' && publish !== undefined) {
      address = await localAddressTowards(publish, job.rendezvous.port)
    }
    const nodeZero = { ...describeSelf(job, address), nodeRank: 0 }
    return new Members(job, jobStore, publish, nodeZero, context)
  }

  /**
   * Waits until enough nodes are present, and makes a plan with them. If more may join, it waits for the
   * last-call time as well.
   *
   * @param attempt - the number of the attempt in which nodes without a plan start
   * @throws ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED, ERR_TSR_LOOPBACK, ERR_TSR_ABORTED;
   *   the waiting nodes receive the error
   */
  async gather(attempt: number): Promise<NodePlan> {
    const { placement, rendezvous } = this.#job
    const waiting = new WaitAnnouncer(this.#context.announcer, '')
    const deadline = Deadline.after(rendezvous.timeout)
    let lastCall: Deadline | undefined
    try {
      for (;;) {
        if (this.#failure !== undefined) throw this.#failure as Error
        const here = 1 + this.arrived.size
        if (here >= placement.nnodes) break
        lastCall =
          here < placement.minNodes ? undefined : (lastCall ?? Deadline.after(rendezvous.lastCall))
        if (lastCall?.expired === true) break
        const missing = this.#missing(here)
        waiting.whom = missing + loopbackHint(this.#publish ?? '')
        await post(this.#store, keys.missing, missing)
        if (lastCall === undefined && deadline.expired) {
          const { host, port, timeout } = rendezvous
          const endpoint = nameEndpoint(host, port)
          throw rendezvousTimeout(timeout, `${waiting.whom} did not connect to ${endpoint}`)
        }
        await this.#change((lastCall ?? deadline).remaining())
      }
      return await this.#makePlan(attempt)
    } catch (error) {
      const message = errorForOthers(error, this.#nodeZero)
      await post(this.#store, keys.refused, message).catch(() => undefined)
      throw error
    } finally {
      waiting.end()
    }
  }

  /** Removes a lost node, although its launcher may still be running. */
  remove(id: string): void {
    this.arrived.delete(id)
  }

  close(): void {
    this.#ended.abort()
  }

  get #store(): Store {
    return this.#jobStore.local
  }

  /** Resolves when a node has joined or left, or after the time limit. */
  async #change(limit: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, Math.min(limit, 2 ** 31 - 1))
      this.#changed = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  async #collect(): Promise<void> {
    const signal = AbortSignal.any([this.#context.interrupts.stop, this.#ended.signal])
    for (;;) {
      const arrival = await nextNode(this.#store, Deadline.after(Infinity), signal)
      if (arrival === undefined) continue
      const free = this.#freeRanks()[0]
      const next: ArrivedNode = {
        ...arrival,
        node: { ...arrival.node, nodeRank: arrival.node.nodeRank ?? free ?? this.arrived.size + 1 },
      }
      const problem = this.#problemOf(next, free === undefined)
      if (problem !== undefined) {
        const error = tsrError('ERR_TSR_RENDEZVOUS_REFUSED', { problem })
        // Before the first plan, a mismatched node ends the job, because its command line is mistyped.
        if (this.#plan === undefined) throw error
        await post(this.#store, keys.declined(next.id), error.toJSON())
        continue
      }
      this.arrived.set(next.id, next)
      await this.#store.watch(keys.node(next.id), ({ value }) => {
        if (value === undefined) this.#leave(next)
      })
      if (!(await this.#store.check([keys.node(next.id)]))) this.#leave(next)
      if (this.arrived.has(next.id)) this.onArrival(next)
      this.#changed()
    }
  }

  #leave(node: ArrivedNode): void {
    this.onLeave(node)
    this.arrived.delete(node.id)
    this.#changed()
  }

  #problemOf({ node }: ArrivedNode, isFull: boolean): string | undefined {
    const known = new Map([
      [0, this.#nodeZero],
      ...[...this.arrived.values()].map((one) => [one.node.nodeRank, one.node] as const),
    ])
    const problem = findMismatch(node, this.#nodeZero, known)
    if (problem !== undefined || !isFull) return problem
    const { nnodes } = this.#job.placement
    return `the job has its ${nnodes} nodes, and ${node.host} is one more`
  }

  #freeRanks(): number[] {
    const taken = new Set([...this.arrived.values()].map(({ node }) => node.nodeRank))
    const { nnodes } = this.#job.placement
    return Array.from({ length: nnodes - 1 }, (_, i) => i + 1).filter((rank) => !taken.has(rank))
  }

  /** Describes the missing nodes. @param here - number of present nodes */
  #missing(here: number): string {
    const { nnodes, minNodes } = this.#job.placement
    if (minNodes === nnodes) return nameNodes(this.#freeRanks())
    const of = `${here} of ${minNodes} to ${nnodes} nodes are here`
    return here < minNodes ? `more nodes: ${of}` : `the last call to end: ${of}`
  }

  async #makePlan(attempt: number): Promise<NodePlan> {
    const { rendezvous, identity } = this.#job
    const nodes = [...this.arrived.values()]
    const master = this.#publish ?? usedAddress(nodes) ?? rendezvous.host
    const { address } = this.#nodeZero
    const own = { ...this.#nodeZero, address: address === '' ? master : address }
    const all = [own, ...nodes.map(({ node }) => node)]
    const unreachable = findUnreachable(all, isLoopback)
    if (unreachable !== undefined) throw loopbackError(unreachable)
    const before = this.#plan
    const { endpoint } = this.#jobStore
    const plan = makePlan(identity.runId, { ...endpoint, host: master }, [
      { id: ZERO, node: own },
      ...nodes,
    ])
    this.#plan = plan
    if (before !== undefined) await post(this.#store, keys.plan(attempt), plan)
    const invitation: Invitation = { plan, attempt }
    for (const { id } of nodes) {
      if (before?.nodes.some((one) => one.id === id) === true) continue
      await post(this.#store, keys.invitation(id), invitation)
    }
    return plan
  }
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
    // The key of a node that has left is deleted, so do not wait for the key.
    const key = keys.node(Buffer.from(id).toString())
    const node = await unlessLate(store.get(key, { timeout: 0, signal }))
    // Ignore an invalid message.
    const arrival = node && parse(node, arrivalMessage)
    if (arrival !== undefined) return arrival
  }
}

async function unlessLate(value: Promise<Uint8Array>): Promise<Uint8Array | undefined> {
  return await value.catch((error: unknown) => {
    if (isTsrError(error) && error.code === 'ERR_TSR_STORE_TIMEOUT') return undefined
    throw error
  })
}

/** The address of this host that the other nodes used. */
function usedAddress(nodes: readonly ArrivedNode[]): string | undefined {
  const own = ownAddresses()
  return nodes.map(({ storeAddress }) => storeAddress).find((address) => own.includes(address))
}

function loopbackError({ nodeRank, host, address }: NumberedNode): TsrError {
  return tsrError('ERR_TSR_LOOPBACK', { who: `Node ${nodeRank} (${host})`, address })
}

/** The error for the nodes that have arrived: `error`, or that node 0 is leaving. */
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
