import { hostname } from 'node:os'
import { addressOfInterface } from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import type { NodePlan, Nodes } from '../job/nodes.ts'
import { startJobStore, storeAddress, type JobStore } from './endpoint.ts'
import { gatherNodes } from './gather.ts'
import { joinNodes } from './join.ts'
import { NodeZero } from './node-zero.ts'
import { OtherNode } from './other-node.ts'
import { judge } from './verdict.ts'

/** Refused connections that are announced, so that a port scan does not fill the console. */
const REFUSALS_SHOWN = 5

/**
 * Brings the nodes of a job together: node 0 serves the store, and the others connect to it.
 *
 * @throws ERR_TSR_INTERFACE, ERR_TSR_STORE_ADDRESS, ERR_TSR_STORE_AUTHENTICATION,
 * ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED, ERR_TSR_LOOPBACK, ERR_TSR_NODE_LOST;
 * ERR_TSR_ABORTED at an interrupt
 */
export async function rendezvous(job: Job, context: JobContext): Promise<Nodes> {
  const { options } = job
  if (options.iface !== undefined) addressOfInterface(options.iface)
  if (options.nnodes === 1) {
    const store = await startStore(job, options.masterAddr, context)
    return createOnlyNode(job, store)
  }
  if (options.nodeRank > 0) {
    const joined = await joinNodes(job, context)
    return new OtherNode(job, joined, context)
  }
  const address = await storeAddress(options)
  const store = await startStore(job, address.listen, context)
  try {
    const gathered = await gatherNodes(job, store, address, context)
    return new NodeZero(job, store, gathered, context)
  } catch (error) {
    await store.close()
    throw error
  }
}

async function startStore(
  { options, identity }: Job,
  address: string,
  { announcer }: JobContext,
): Promise<JobStore> {
  let refused = 0
  return await startJobStore(address, options.masterPort, identity.token, (peer, reason) => {
    if (++refused > REFUSALS_SHOWN) return
    announcer.say('refused', `refused a connection from ${peer} to the store: ${reason}`, {
      peer,
      reason,
    })
  })
}

/** The only node of a job, which has no other to agree with. */
export function createOnlyNode(
  { options, identity }: Job,
  store: Pick<JobStore, 'endpoint' | 'close'>,
): Nodes {
  const master = store.endpoint
  const node = { nodeRank: 0, nproc: options.nproc, host: hostname(), address: master.host }
  const plan: NodePlan = { runId: identity.runId, master, nodes: [node] }
  const never = new AbortController().signal
  return {
    plan,
    begin: (restartCount) => ({
      halt: never,
      fail: () => undefined,
      conclude: (report) => {
        const { maxRestarts } = options
        const evidence = { plan, reports: [report], lost: [], restartCount, maxRestarts }
        return Promise.resolve(judge(evidence))
      },
    }),
    close: () => store.close(),
  }
}
