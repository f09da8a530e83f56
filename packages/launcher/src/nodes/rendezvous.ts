import { isIP } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { isTsrError } from '@tsrun/core'
import {
  addressOfInterface,
  findListenAddress,
  isLocalhost,
  isLoopback,
  storeTlsOf,
  systemNames,
  type ListenAddress,
} from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import type { Nodes } from '../job/nodes.ts'
import type { NodePlan } from '../protocol/nodes.ts'
import { findFreePort, findStoreAddress, startJobStore, type JobStore } from './endpoint.ts'
import { openMembers } from './gather.ts'
import { joinNodes, createOtherNode } from './other-node.ts'
import { forgetAttempt } from './messages.ts'
import { createNodeZero } from './node-zero.ts'
import { countRestarts, judge } from './verdict.ts'

/** The maximum number of announced refusals, so that a port scan does not fill the console. */
const REFUSALS_SHOWN = 5

/** Connects the nodes of a job: node 0 serves the store, and the others connect to it. */
export async function rendezvous(job: Job, context: JobContext): Promise<Nodes> {
  const { rendezvous: place, placement } = job
  if (placement.iface !== undefined) addressOfInterface(placement.iface)
  if (placement.nnodes === 1) {
    if (isIP(place.host) === 0) await findStoreAddress(place, true, context)
    return createOnlyNode(job, await startStore(job, await onlyAddress(place.host), context))
  }
  const isZero = isNodeZero(job)
  const address =
    isZero === false ? undefined : await findStoreAddress(place, isZero === true, context)
  const store =
    address &&
    (await startStore(job, address.listen, context).catch((error: unknown) => {
      // Another launcher of this host may serve the store.
      if (isZero !== true && isTsrError(error) && error.code === 'ERR_TSR_STORE_ADDRESS') return
      throw error
    }))
  if (address !== undefined && store !== undefined) return await lead(job, store, address, context)
  // Poll whether the name resolves to this host: at first, the name may belong to a lost node 0.
  const isHere = async (): Promise<boolean> => 'listen' in (await findListenAddress(place.host))
  const mayLead = isZero === undefined && address === undefined
  const joined = await joinNodes(job, context, mayLead ? isHere : undefined)
  if (joined === undefined) return await rendezvous(job, context)
  return createOtherNode(job, joined, context)
}

/**
 * Whether this host is node 0; undefined if no option decides. Then the host of the endpoint becomes
 * node 0, unless another launcher serves the store.
 */
function isNodeZero({
  placement: { nodeRank },
  rendezvous: { isNodeZero },
}: Job): boolean | undefined {
  if (nodeRank !== undefined && nodeRank > 0) return false
  return isNodeZero ?? (nodeRank === undefined ? undefined : true)
}

/** The listen address for the store of a single host: `host`, unless its first address is not local. */
async function onlyAddress(host: string): Promise<string> {
  const [first = host] = await systemNames.lookup(host).catch(() => [])
  if ('listen' in (await findListenAddress(first))) return host
  const found = await findListenAddress(host)
  return 'listen' in found ? found.listen : host
}

async function lead(
  job: Job,
  store: JobStore,
  address: ListenAddress,
  context: JobContext,
): Promise<Nodes> {
  try {
    const members = await openMembers(job, store, address, context)
    return createNodeZero(job, store, members, await members.gather(0), context)
  } catch (error) {
    await store.close()
    throw error
  }
}

async function startStore(
  { program, rendezvous: { port }, protection, identity }: Job,
  address: string,
  { announcer }: JobContext,
): Promise<JobStore> {
  warnOfLoopback(address, announcer)
  let refused = 0
  const onRefused = (peer: string, reason: string): void => {
    if (++refused > REFUSALS_SHOWN) return
    const text = `refused a connection from ${peer} to the store: ${reason}`
    announcer.say('refused', text, { peer, reason })
  }
  const { token } = identity
  const store = await startJobStore(address, port, token, onRefused, storeTlsOf(protection))
  if (program.kind !== 'program') return store
  const freePort = await findFreePort(address)
  return {
    local: store.local,
    endpoint: { ...store.endpoint, freePort },
    close: () => store.close(),
  }
}

/** Warns if no rank can reach a store at a loopback address, because that interface is down. */
export function warnOfLoopback(
  address: string,
  announcer: Pick<JobContext['announcer'], 'say'>,
): void {
  if (!isLoopback(address) && !isLocalhost(address)) return
  if (isLoopbackUp()) return
  const text = 'the loopback interface is down, so no rank can reach the store: ip link set lo up'
  announcer.say('loopback', text)
}

function isLoopbackUp(): boolean {
  try {
    return Object.values(networkInterfaces()).some((of) => of?.some(({ internal }) => internal))
  } catch {
    // Some sandboxes refuse to list the interfaces.
    return true
  }
}

export function createOnlyNode({ placement, restart, identity }: Job, store: JobStore): Nodes {
  const master = store.endpoint
  const { nproc, role } = placement
  const node = { id: 'zero', nodeRank: 0, nproc, host: hostname(), address: master.host, role }
  const plan: NodePlan = { runId: identity.runId, master, nodes: [node] }
  const never = new AbortController().signal
  const budget = countRestarts()
  return {
    plan,
    nodeRank: 0,
    firstAttempt: 0,
    begin: (restartCount) => {
      budget.begin()
      forgetAttempt(store.local, restartCount - 1).catch(() => undefined)
      return {
        halt: never,
        fail: () => undefined,
        conclude: (report) => {
          const { maxRestarts } = restart
          const reports = [report]
          const evidence = { plan, reports, lost: [], restarts: budget.used, maxRestarts }
          return Promise.resolve({ verdict: budget.take(judge(evidence)), reports })
        },
      }
    },
    close: () => store.close(),
  }
}
