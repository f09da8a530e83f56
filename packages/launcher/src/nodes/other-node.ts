import { once } from 'node:events'
import { randomBytes } from 'node:crypto'
import { isTsrError, reviveTsrError, text, tsrError } from '@tsrun/core'
import {
  addressOfInterface,
  connectStore,
  isLoopback,
  nameEndpoint,
  storeTlsOf,
  systemNames,
  type Store,
} from '@tsrun/store'
import type { Job, JobContext } from '../job/job.ts'
import { isLeave, type Conclusion, type Nodes } from '../job/nodes.ts'
import {
  haltAtFailure,
  keys,
  packReport,
  receive,
  shareInterrupts,
  tell,
  parse,
} from './messages.ts'
import {
  type NodeFacts,
  type NodeReport,
  type Verdict,
  type LostNode,
  planWith,
  verdictMessage,
  errorMessage,
  invitationOf,
  type Arrival,
  type Invitation,
} from '../protocol/nodes.ts'
import { goesOn, judge } from './verdict.ts'
import { HEARTBEAT, monitorHeartbeats, announceWait, type WaitAnnouncer } from './waiting.ts'
import { loopbackHint, rendezvousTimeout } from './endpoint.ts'
import { describeSelf } from './gather.ts'

interface Joined {
  readonly store: Store
  readonly id: string
  readonly invitation: Invitation
}

/**
 * Joins the job on a node other than node 0: connects to the store, registers and waits for the plan.
 *
 * @param isHere - whether the endpoint now resolves to this host
 * @returns undefined if the endpoint resolves to this host, which then becomes node 0
 */
export async function joinNodes(
  job: Job,
  context: JobContext,
  isHere?: () => Promise<boolean>,
): Promise<Joined | undefined> {
  const { iface } = job.placement
  const waiting = announceWait(context.announcer, 'node 0')
  const store = await connect(job, context, waiting, isHere)
  if (store === undefined) return undefined
  const { localAddress, remoteAddress: storeAddress } = store
  try {
    const id = randomBytes(8).toString('hex')
    const address = iface === undefined ? localAddress : addressOfInterface(iface)
    const self: Arrival = { id, node: describeSelf(job, address), storeAddress }
    const limit = { signal: context.interrupts.stop, timeout: job.rendezvous.timeout }
    // Start to wait before registering, so that no answer is missed.
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
  try {
    return await connectStore({
      host,
      port,
      token: identity.token,
      tls: storeTlsOf(protection),
      timeout,
      signal: AbortSignal.any([interrupts.stop, here.signal]),
      onRetry: (reason) => {
        failures++
        waiting.whom = `node 0 at ${nameEndpoint(host, port)}: ${reason}${hint}`
        const look = async (): Promise<void> => {
          if ((await isHere?.()) === true) here.abort()
          const [address = '', ...others] = await systemNames.lookup(host)
          if (others.every(isLoopback)) hint = loopbackHint(address)
        }
        look().catch(() => undefined)
      },
    })
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

/** Creates a node other than node 0. The node reports to node 0, which decides the outcome. */
export function createOtherNode(
  { placement, rendezvous: { hostTimeout } }: Job,
  { store, id, invitation }: Joined,
  { announcer, interrupts }: JobContext,
): Nodes {
  let { plan } = invitation
  const isElastic = placement.minNodes < placement.nnodes
  /** Aborted when node 0 is lost. */
  const alone = new AbortController()
  let isClosed = false
  const find = (): NodeFacts => plan.nodes.find((node) => node.id === id)!

  const lose = (reason: string): void => {
    if (isClosed) return
    const { host, address } = plan.nodes[0]!
    alone.abort({ node: 0, host, address, reason } satisfies LostNode)
  }

  const nodeZero = plan.nodes[0]!
  const monitor = monitorHeartbeats(announcer, hostTimeout, {
    node: () => nodeZero,
    consequence: 'the job fails',
    onLost: () => {
      lose(`it did not answer for ${hostTimeout / 1000} s`)
    },
  })
  let answered = true
  const heartbeat = setInterval(() => {
    monitor.tick()
    if (!answered) return
    answered = false
    const heard = (): void => {
      answered = true
      monitor.heard()
    }
    store.set(keys.heartbeat(id), '').then(heard, () => undefined)
  }, HEARTBEAT)
  shareInterrupts(store, find(), interrupts, isElastic).catch(() => undefined)

  const conclude = async (
    restartCount: number,
    report: NodeReport,
    verdict: Promise<Verdict>,
  ): Promise<Conclusion> => {
    const { interruption } = report
    if (isElastic && isLeave(interruption)) {
      const { exitCode } = interruption!
      announcer.say('leave', 'this host has left the job, which continues without it')
      return { verdict: { kind: 'interrupted', exitCode }, reports: undefined }
    }
    tell(store, keys.report(restartCount, id), packReport(report))
    const listening = new AbortController()
    const judgeAlone = async (): Promise<Conclusion> => {
      if (!alone.signal.aborted) await once(alone.signal, 'abort', { signal: listening.signal })
      const lost = [alone.signal.reason as LostNode]
      const reports = [report]
      return { verdict: judge({ plan, reports, lost, restarts: 0, maxRestarts: 0 }), reports }
    }
    const withoutZero = judgeAlone()
    // If the connection to the store fails, node 0 counts as lost, and this node decides the outcome alone.
    const common = verdict.then(
      (said): Conclusion => ({ verdict: said, reports: undefined }),
      () => withoutZero,
    )
    const conclusion = await Promise.race([common, withoutZero])
    // Stop waiting for the loss of node 0. The race above handles the resulting rejection.
    listening.abort()
    if (isElastic && goesOn(conclusion.verdict))
      plan = await receive(store, keys.plan(restartCount + 1), planWith(id))
    return conclusion
  }

  return {
    firstAttempt: invitation.attempt,
    get plan() {
      return plan
    },
    get nodeRank() {
      return find().nodeRank
    },
    begin(restartCount) {
      const halt = new AbortController()
      const verdict = receive(store, keys.verdict(restartCount), verdictMessage)
      verdict.catch(() => {
        lose('its launcher has ended')
      })
      haltAtFailure(store, restartCount, halt)
      return {
        halt: AbortSignal.any([halt.signal, alone.signal]),
        fail: () => {
          tell(store, keys.failing(restartCount), find().nodeRank)
        },
        conclude: (report) => conclude(restartCount, report, verdict),
      }
    },
    async close() {
      isClosed = true
      clearInterval(heartbeat)
      await store.close()
    },
  }
}
