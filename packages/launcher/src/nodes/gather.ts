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
  /** Names the key of the node, which vanishes with its launcher. */
  readonly id: string
  readonly node: NumberedNode
  /** The address at which it reached the store. */
  readonly storeAddress: string
}

/** The id of node 0. */
const ZERO = 'zero'

/**
 * On node 0: the nodes of a job, as they come and go. `gather` makes the plan of the first attempt, and
 * in an elastic job that of each later one.
 */
export class Members {
  /** All nodes that are here but node 0, by id, in the order of their arrival. */
  readonly arrived = new Map<string, ArrivedNode>()
  /** Called for a node that arrives. */
  onArrival: (node: ArrivedNode) => void = () => undefined
  /** Called for a node whose launcher has ended. */
  onLeave: (node: ArrivedNode) => void = () => undefined
  readonly #job: Job
  readonly #jobStore: JobStore
  readonly #publish: string | undefined
  readonly #nodeZero: NumberedNode
  readonly #context: JobContext
  readonly #ended = new AbortController()
  /** Why no more nodes arrive. */
  #failure: unknown
  #plan: NodePlan | undefined
  /** Wakes `gather`. */
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

  /** Lets nodes arrive from now on. */
  static async open(
    job: Job,
    jobStore: JobStore,
    { publish }: ListenAddress,
    context: JobContext,
  ): Promise<Members> {
    const { iface, masterPort } = job.options
    let address = iface === undefined ? '' : addressOfInterface(iface)
    // else it follows from the address that the others use
    if (address === '' && publish !== undefined) {
      address = await localAddressTowards(publish, masterPort)
    }
    const nodeZero = { ...describeSelf(job, address), nodeRank: 0 }
    return new Members(job, jobStore, publish, nodeZero, context)
  }

  /**
   * Waits until enough nodes are here, and makes a plan with them. If more may take part, it waits for
   * them for the time of the last call.
   *
   * @param attempt - the first one of nodes that have no plan yet, which are sent this one
   * @throws ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED, ERR_TSR_LOOPBACK, ERR_TSR_ABORTED;
   *   the nodes that wait are told
   */
  async gather(attempt: number): Promise<NodePlan> {
    const { options } = this.#job
    const waiting = new WaitAnnouncer(this.#context.announcer, '')
    const deadline = Deadline.after(options.rdzvTimeout)
    let lastCall: Deadline | undefined
    try {
      for (;;) {
        if (this.#failure !== undefined) throw this.#failure as Error
        const here = 1 + this.arrived.size
        if (here >= options.nnodes) break
        lastCall =
          here < options.minNodes ? undefined : (lastCall ?? Deadline.after(options.lastCall))
        if (lastCall?.expired === true) break
        const missing = this.#missing(here)
        waiting.whom = missing + loopbackHint(this.#publish ?? '')
        await post(this.#store, keys.missing, missing)
        if (lastCall === undefined && deadline.expired) {
          const { masterAddr, masterPort, rdzvTimeout } = options
          const endpoint = nameEndpoint(masterAddr, masterPort)
          throw rendezvousTimeout(rdzvTimeout, `${waiting.whom} did not connect to ${endpoint}`)
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

  /** Forgets a node that is gone although its launcher may still be there. */
  remove(id: string): void {
    this.arrived.delete(id)
  }

  close(): void {
    this.#ended.abort()
  }

  get #store(): Store {
    return this.#jobStore.local
  }

  /** Resolves when a node has come or gone, or the time is up. */
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
        // While the nodes gather, one that does not fit ends the job: its command line is mistyped.
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
    const { nnodes } = this.#job.options
    return `the job has its ${nnodes} nodes, and ${node.host} is one more`
  }

  /** The numbers that no node has. */
  #freeRanks(): number[] {
    const taken = new Set([...this.arrived.values()].map(({ node }) => node.nodeRank))
    const { nnodes } = this.#job.options
    return Array.from({ length: nnodes - 1 }, (_, i) => i + 1).filter((rank) => !taken.has(rank))
  }

  /** Who is waited for. @param here - the number of nodes that are here */
  #missing(here: number): string {
    const { nnodes, minNodes } = this.#job.options
    if (minNodes === nnodes) return nameNodes(this.#freeRanks())
    const of = `${here} of ${minNodes} to ${nnodes} nodes are here`
    return here < minNodes ? `more nodes: ${of}` : `the last call to end: ${of}`
  }

  async #makePlan(attempt: number): Promise<NodePlan> {
    const { options, identity } = this.#job
    const nodes = [...this.arrived.values()]
    const master = this.#publish ?? usedAddress(nodes) ?? options.masterAddr
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
    // The key of a node that has left in the meantime is gone: do not wait for it.
    const key = keys.node(Buffer.from(id).toString())
    const node = await unlessLate(store.get(key, { timeout: 0, signal }))
    // one that cannot be read is none of ours
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

/** The address of this host that the other nodes have used. */
function usedAddress(nodes: readonly ArrivedNode[]): string | undefined {
  const own = ownAddresses()
  return nodes.map(({ storeAddress }) => storeAddress).find((address) => own.includes(address))
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

/** The nodes in the order of their numbers, which leave no gaps: a node that has gone makes room. */
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
