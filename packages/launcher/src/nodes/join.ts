import { randomBytes } from 'node:crypto'
import { isTsrError, reviveTsrError, text, tsrError } from '@tsrun/core'
import {
  addressOfInterface,
  connectStore,
  isLoopback,
  storeTlsOf,
  systemNames,
  type Store,
  type StoreConnection,
} from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import { loopbackHint, rendezvousTimeout } from './endpoint.ts'
import { keys, parse, receive } from './messages.ts'
import { describeSelf } from './registration.ts'
import { errorMessage, invitationOf, type Arrival, type Invitation } from '../protocol/nodes.ts'
import { announceWait, type WaitAnnouncer } from './waiting.ts'

export interface Joined {
  readonly store: Store
  readonly id: string
  readonly invitation: Invitation
}

/**
 * Joins the job on a node other than node 0: connects to the store, registers and waits for the plan.
 *
 * @param isHere - whether the endpoint now resolves to this host
 * @returns undefined if it does, because this host then becomes node 0
 * @throws ERR_TSR_STORE_AUTHENTICATION, ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED,
 *   ERR_TSR_LOOPBACK, ERR_TSR_NODE_LOST, ERR_TSR_ABORTED
 */
export async function joinNodes(
  job: Job,
  context: JobContext,
  isHere?: () => Promise<boolean>,
): Promise<Joined | undefined> {
  const { iface } = job.placement
  const waiting = announceWait(context.announcer, 'node 0')
  const reached = await connect(job, context, waiting, isHere)
  if (reached === undefined) return undefined
  const { store, localAddress, remoteAddress: storeAddress } = reached
  try {
    const id = randomBytes(8).toString('hex')
    const address = iface === undefined ? localAddress : addressOfInterface(iface)
    const self: Arrival = { id, node: describeSelf(job, address), storeAddress }
    const limit = { signal: context.interrupts.stop, timeout: job.rendezvous.timeout }
    // Wait before registering, so that no answer is missed.
    const invitation = receive(store, keys.invitation(id), invitationOf(id), limit)
    const refusals = [keys.refused, keys.declined(id)].map(async (key) => {
      const error = await receive(store, key, errorMessage, limit)
      throw reviveTsrError({ ...error, stack: '' })
    })
    const answer = Promise.race([invitation, ...refusals])
    for (const each of [invitation, ...refusals, answer]) each.catch(() => undefined)
    await store.watch(keys.missing, ({ value }) => {
      waiting.whom = (value && parse(value, text)) ?? waiting.whom
    })
    await store.set(keys.node(id), JSON.stringify(self), { whileConnected: true })
    await store.queuePush(keys.joining, id)
    return { store, id, invitation: await answer }
  } catch (error) {
    await store.close()
    throw explain(error, job, waiting.whom)
  } finally {
    waiting.end()
  }
}

async function connect(
  { rendezvous, protection, identity }: Job,
  { interrupts }: JobContext,
  waiting: WaitAnnouncer,
  isHere?: () => Promise<boolean>,
) {
  const { host, port, timeout } = rendezvous
  const here = new AbortController()
  let failures = 0
  let hint = ''
  let ends: StoreConnection | undefined
  try {
    const store = await connectStore({
      host,
      port,
      token: identity.token,
      tls: storeTlsOf(protection),
      timeout,
      signal: AbortSignal.any([interrupts.stop, here.signal]),
      onProgress: ({ endpoint, reason }) => {
        failures++
        waiting.whom = `node 0 at ${endpoint}: ${reason}${hint}`
        const look = async (): Promise<void> => {
          if ((await isHere?.()) === true) here.abort()
          const [address = '', ...others] = await systemNames.lookup(host)
          if (others.every(isLoopback)) hint = loopbackHint(address)
        }
        look().catch(() => undefined)
      },
      onConnect: (connection) => (ends = connection),
    })
    return { store, ...ends! }
  } catch (error) {
    waiting.end()
    if (here.signal.aborted && !interrupts.stop.aborted) return undefined
    if (!isTsrError(error) || error.code !== 'ERR_TSR_STORE_UNREACHABLE' || failures === 0)
      throw error
    throw rendezvousTimeout(timeout, waiting.whom, error)
  }
}

function explain(error: unknown, { rendezvous }: Job, whom: string): unknown {
  if (!isTsrError(error)) return error
  if (error.code === 'ERR_TSR_STORE_TIMEOUT') {
    return rendezvousTimeout(rendezvous.timeout, `${whom} did not connect`)
  }
  if (error.code !== 'ERR_TSR_STORE_CLOSED') return error
  const reason = 'its store was closed while the nodes were coming together'
  return tsrError('ERR_TSR_NODE_LOST', { node: 0, host: rendezvous.host, reason }, { cause: error })
}
