import { randomBytes } from 'node:crypto'
import { isText, isTsrError, reviveTsrError, tsrError } from '@tsrun/core'
import { connectStore, storeTlsOf, type Store } from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import { loopbackHint, ownAddress, resolve } from './endpoint.ts'
import { keys, parse, receive } from './messages.ts'
import { describeSelf } from './registration.ts'
import { invitationOf, isSentError, type Arrival, type Invitation } from './shapes.ts'
import { WaitAnnouncer } from './waiting.ts'

export interface Joined {
  readonly store: Store
  /** Of this node. */
  readonly id: string
  readonly invitation: Invitation
}

/**
 * On any node but node 0: connects to the store, registers there and waits for the plan.
 *
 * @throws ERR_TSR_STORE_AUTHENTICATION, ERR_TSR_RENDEZVOUS_TIMEOUT, ERR_TSR_RENDEZVOUS_REFUSED,
 * ERR_TSR_LOOPBACK, ERR_TSR_NODE_LOST, ERR_TSR_ABORTED
 */
export async function joinNodes(job: Job, context: JobContext): Promise<Joined> {
  const { options } = job
  const waiting = new WaitAnnouncer(context.announcer, 'node 0')
  const store = await connect(job, context, waiting)
  const late = new AbortController()
  const timer = setTimeout(
    () => {
      late.abort()
    },
    Math.min(options.rdzvTimeout, 2 ** 31 - 1),
  )
  try {
    const { address: storeAddress } = await resolve(options.masterAddr, options.masterPort)
    const id = randomBytes(8).toString('hex')
    const self: Arrival = {
      id,
      node: describeSelf(job, await ownAddress(options)),
      storeAddress,
    }
    const limit = AbortSignal.any([context.interrupts.stop, late.signal])
    // These wait before this node registers, so that no answer is missed.
    const invitation = receive(store, keys.invitation(id), invitationOf(id), limit)
    const refusals = [keys.refused, keys.declined(id)].map(async (key) => {
      const error = await receive(store, key, isSentError, limit)
      throw reviveTsrError({ ...error, stack: '' })
    })
    const answer = Promise.race([invitation, ...refusals])
    for (const each of [invitation, ...refusals, answer]) each.catch(() => undefined)
    await store.watch(keys.missing, ({ value }) => {
      waiting.whom = (value && parse(value, isText)) ?? waiting.whom
    })
    await store.set(keys.node(id), JSON.stringify(self), { whileConnected: true })
    await store.queuePush(keys.joining, id)
    return { store, id, invitation: await answer }
  } catch (error) {
    await store.close()
    throw explain(error, job, context, waiting.whom)
  } finally {
    clearTimeout(timer)
    waiting.end()
  }
}

async function connect(
  { options, identity }: Job,
  { interrupts }: JobContext,
  waiting: WaitAnnouncer,
): Promise<Store> {
  const { masterAddr: host, masterPort: port, rdzvTimeout: timeout } = options
  const tls = storeTlsOf(options.protection)
  let reason: string | undefined
  let hint = ''
  try {
    return await connectStore({
      host,
      port,
      token: identity.token,
      ...(tls && { tls }),
      timeout,
      signal: interrupts.stop,
      onProgress: (progress) => {
        reason = progress.reason
        waiting.whom = `node 0 at ${progress.endpoint}: ${reason}${hint}`
        void resolve(host, port).then(
          ({ address }) => (hint = loopbackHint(address)),
          () => undefined,
        )
      },
    })
  } catch (error) {
    waiting.end()
    const isLate =
      isTsrError(error) && error.code === 'ERR_TSR_STORE_UNREACHABLE' && reason !== undefined
    if (!isLate) throw error
    const missing = waiting.whom
    throw tsrError(
      'ERR_TSR_RENDEZVOUS_TIMEOUT',
      { seconds: timeout / 1000, missing },
      { cause: error },
    )
  }
}

function explain(
  error: unknown,
  { options }: Job,
  { interrupts }: JobContext,
  whom: string,
): unknown {
  if (!isTsrError(error)) return error
  if (error.code === 'ERR_TSR_ABORTED' && !interrupts.stop.aborted) {
    const seconds = options.rdzvTimeout / 1000
    return tsrError('ERR_TSR_RENDEZVOUS_TIMEOUT', { seconds, missing: `${whom} did not connect` })
  }
  if (error.code !== 'ERR_TSR_STORE_CLOSED') return error
  const reason = 'its store was closed while the nodes were coming together'
  return tsrError(
    'ERR_TSR_NODE_LOST',
    { node: 0, host: options.masterAddr, reason },
    { cause: error },
  )
}
