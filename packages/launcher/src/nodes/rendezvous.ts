import { hostname } from 'node:os'
import { isTsrError } from '@tsrun/core'
import { addressOfInterface, storeTlsOf } from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import type { NodePlan, Nodes } from '../job/nodes.ts'
import {
  findFreePort,
  startJobStore,
  storeAddress,
  type JobStore,
  type StoreAddress,
} from './endpoint.ts'
import { Members } from './gather.ts'
import { joinNodes } from './join.ts'
import { forgetAttempt } from './messages.ts'
import { NodeZero } from './node-zero.ts'
import { OtherNode } from './other-node.ts'
import { judge } from './verdict.ts'

/** Refused connections that are announced, so that a port scan does not fill the console. */
const REFUSALS_SHOWN = 5

/**
 * Brings the nodes of a job together: node 0 serves the store, and the others connect to it.
 *
 * @throws ERR_TSR_INTERFACE, ERR_TSR_STORE_ADDRESS, ERR_TSR_STORE_AUTHENTICATION,
 * ERR_TSR_STORE_TLS, ERR_TSR_STORE_PROTECTION, ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED, ERR_TSR_LOOPBACK, ERR_TSR_NODE_LOST;
 * ERR_TSR_ABORTED at an interrupt
 */
export async function rendezvous(job: Job, context: JobContext): Promise<Nodes> {
  const { options } = job
  if (options.iface !== undefined) addressOfInterface(options.iface)
  if (options.nnodes === 1) {
    const store = await startStore(job, options.masterAddr, context)
    return createOnlyNode(job, store)
  }
  const served = await serveStore(job, context)
  if (served === undefined) return new OtherNode(job, await joinNodes(job, context), context)
  const { store, address } = served
  try {
    const members = await Members.open(job, store, address, context)
    return new NodeZero(job, store, members, await members.gather(0), context)
  } catch (error) {
    await store.close()
    throw error
  }
}

interface ServedStore {
  readonly store: JobStore
  readonly address: StoreAddress
}

/**
 * Serves the store if this is node 0: because somebody says so or, where nodes have no numbers, because
 * the endpoint is here and no other launcher serves it.
 *
 * @returns undefined on any other node
 */
async function serveStore(job: Job, context: JobContext): Promise<ServedStore | undefined> {
  const { options } = job
  const isSaid = options.isNodeZero ?? (options.nodeRank === undefined ? undefined : true)
  if (options.isNodeZero === false || (options.nodeRank ?? 0) > 0) return undefined
  try {
    const address = await storeAddress(options)
    return { store: await startStore(job, address.listen, context), address }
  } catch (error) {
    if (isSaid === true || !isTsrError(error) || error.code !== 'ERR_TSR_STORE_ADDRESS') throw error
    // The endpoint is on another host, unknown as yet, or served by another launcher of this one.
    return undefined
  }
}

async function startStore(
  { options, identity }: Job,
  address: string,
  { announcer }: JobContext,
): Promise<JobStore> {
  let refused = 0
  const tls = storeTlsOf(options.protection)
  const onRefused = (peer: string, reason: string): void => {
    if (++refused > REFUSALS_SHOWN) return
    announcer.say('refused', `refused a connection from ${peer} to the store: ${reason}`, {
      peer,
      reason,
    })
  }
  const { masterPort } = options
  const store = await startJobStore(address, masterPort, identity.token, onRefused, tls)
  if (options.kind !== 'program') return store
  const freePort = await findFreePort(address)
  return {
    local: store.local,
    endpoint: { ...store.endpoint, freePort },
    close: () => store.close(),
  }
}

/** The only node of a job, which has no other to agree with. */
export function createOnlyNode({ options, identity }: Job, store: JobStore): Nodes {
  const master = store.endpoint
  const { nproc, role } = options
  const node = { id: 'zero', nodeRank: 0, nproc, host: hostname(), address: master.host, role }
  const plan: NodePlan = { runId: identity.runId, master, nodes: [node] }
  const never = new AbortController().signal
  return {
    plan,
    nodeRank: 0,
    firstAttempt: 0,
    begin: (restartCount) => {
      forgetAttempt(store.local, restartCount - 1).catch(() => undefined)
      return {
        halt: never,
        fail: () => undefined,
        conclude: (report) => {
          const { maxRestarts } = options
          const reports = [report]
          const evidence = { plan, reports, lost: [], restarts: restartCount, maxRestarts }
          return Promise.resolve({ verdict: judge(evidence), reports })
        },
      }
    },
    close: () => store.close(),
  }
}
