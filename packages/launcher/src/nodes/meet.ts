import { addressOfInterface } from '@tsrun/store'
import type { Surroundings } from '../job/attempt.ts'
import type { Job } from '../job/job.ts'
import { type Nodes, planAlone, type NodePlan } from '../job/nodes.ts'
import { hostStore, type HostedStore, storeAddress } from './endpoint.ts'
import { gatherNodes } from './gather.ts'
import { joinNodes } from './join.ts'
import { NodeZero } from './node-zero.ts'
import { OtherNode } from './other-node.ts'
import { judge } from './verdict.ts'

/** Refused connections that are announced; a port scan should not fill the console. */
const REFUSALS_SHOWN = 5

/**
 * Brings the nodes of a job together: node 0 hosts the store, the others find it.
 *
 * @throws ERR_TSR_INTERFACE, ERR_TSR_STORE_ADDRESS, ERR_TSR_STORE_AUTHENTICATION, ERR_TSR_RENDEZVOUS_TIMEOUT,
 * ERR_TSR_RENDEZVOUS_REFUSED, ERR_TSR_LOOPBACK, ERR_TSR_NODE_LOST; ERR_TSR_ABORTED at an interrupt
 */
export async function meet(job: Job, around: Surroundings): Promise<Nodes> {
  const { options } = job
  if (options.iface !== undefined) addressOfInterface(options.iface)
  if (options.nnodes === 1) {
    const store = await host(job, options.masterAddr, around)
    return createAlone(job, store.endpoint, () => store.close())
  }
  if (options.nodeRank > 0) {
    const joined = await joinNodes(job, around)
    return new OtherNode(job, joined, around)
  }
  const address = await storeAddress(options)
  const store = await host(job, address.listen, around)
  try {
    const gathered = await gatherNodes(job, store, address, around)
    return new NodeZero(job, store, gathered, around)
  } catch (error) {
    await store.close()
    throw error
  }
}

async function host(
  { options, identity }: Job,
  address: string,
  { announcer }: Surroundings,
): Promise<HostedStore> {
  let refused = 0
  return await hostStore(address, options.masterPort, identity.token, (peer, reason) => {
    if (++refused > REFUSALS_SHOWN) return
    announcer.say('refused', `refused a connection from ${peer} to the store: ${reason}`, {
      peer,
      reason,
    })
  })
}

/** The only node of a job: there is nobody to agree with. */
export function createAlone(
  job: Job,
  master: NodePlan['master'],
  close: () => Promise<void>,
): Nodes {
  const plan = planAlone(job, master)
  const never = new AbortController().signal
  return {
    plan,
    begin: (restartCount) => ({
      halt: never,
      fail: () => undefined,
      conclude: (report) => {
        const { maxRestarts } = job.options
        const evidence = { plan, reports: [report], lost: [], restartCount, maxRestarts }
        return Promise.resolve(judge(evidence))
      },
    }),
    close,
  }
}
