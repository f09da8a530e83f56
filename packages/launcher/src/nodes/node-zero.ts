import { setTimeout as pause } from 'node:timers/promises'
import { isTsrError } from '@tsrun/core'
import type { Job, JobContext } from '../job/job.ts'
import type { Conclusion, Nodes } from '../job/nodes.ts'
import { aborted } from '../job/process/interrupts.ts'
import type { JobStore } from './endpoint.ts'
import type { Members } from './gather.ts'
import {
  forgetAttempt,
  haltAtFailure,
  keys,
  post,
  receive,
  shareInterrupts,
  tell,
  unpackReport,
} from './messages.ts'
import {
  type NodeFacts,
  type NodePlan,
  type NodeReport,
  type LostNode,
  reportMessage,
} from '../protocol/nodes.ts'
import { countRestarts, goesOn, judge } from './verdict.ts'
import { HEARTBEAT, monitorHeartbeats, type HeartbeatMonitor } from './waiting.ts'

/** Milliseconds for the other nodes to read the outcome of the last attempt before the store closes. */
const CLOSING_TIME = 3000

interface Watched {
  readonly monitor: HeartbeatMonitor
  /** Aborted when the node is lost, or has left after the last attempt. */
  readonly gone: AbortController
}

/** Creates node 0, which serves the store, watches the other nodes and decides the outcome of attempts. */
export function createNodeZero(
  { placement, rendezvous: { hostTimeout }, restart }: Job,
  jobStore: JobStore,
  members: Members,
  firstPlan: NodePlan,
  { announcer, events, interrupts }: JobContext,
): Nodes {
  const { local: store } = jobStore
  const isElastic = placement.minNodes < placement.nnodes
  let plan = firstPlan
  const watched = new Map<string, Watched>()
  let lost: LostNode[] = []
  /** Whether a lost node left voluntarily. */
  let hasLeft = false
  const budget = countRestarts()
  /** The reason to end the current attempt early, if there is one. */
  let change: string | undefined
  let current: number | undefined
  let halt = new AbortController()
  const find = (id: string): NodeFacts | undefined => plan.nodes.find((node) => node.id === id)

  const tellFailing = (restartCount: number): void => {
    tell(store, keys.failing(restartCount), 0)
  }

  const lose = (id: string, reason: string, isLeave = false): void => {
    const gone = watched.get(id)?.gone
    const node = find(id)
    if (gone === undefined || node === undefined || gone.signal.aborted) return
    const { nodeRank, host, address } = node
    const left = { node: nodeRank, host, address, reason }
    lost = [...lost, left]
    hasLeft ||= isLeave
    events?.record('node-left', { left })
    if (current !== undefined) {
      announcer.say('lost', `node ${nodeRank} (${host}) is gone: ${reason}`, { node: nodeRank })
    }
    gone.abort()
    members.remove(id)
    halt.abort()
  }

  const watch = (id: string): Watched => {
    const monitor = monitorHeartbeats(announcer, hostTimeout, {
      node: () => find(id) ?? { nodeRank: -1, host: '' },
      consequence: isElastic ? 'the job continues without it' : 'the job fails',
      onLost: () => {
        lose(id, `it was silent for ${hostTimeout / 1000} s`)
      },
    })
    store
      .watch(keys.heartbeat(id), () => {
        monitor.heard()
      })
      .catch(() => undefined)
    store
      .watch(keys.leaving(id), ({ value }) => {
        if (value !== undefined) lose(id, 'it was stopped by SIGTERM', true)
      })
      .catch(() => undefined)
    return { monitor, gone: new AbortController() }
  }

  /** Watches the nodes of the plan, and no others. */
  const watchAll = (): void => {
    const ids = plan.nodes.slice(1).map(({ id }) => id)
    for (const id of watched.keys()) if (!ids.includes(id)) watched.delete(id)
    for (const id of ids) if (!watched.has(id)) watched.set(id, watch(id))
    // Check now: nothing announces a node that left before this listener existed.
    for (const id of ids) if (!members.arrived.has(id)) lose(id, 'its launcher has ended')
  }

  /** Plans the next attempt with the present nodes. @returns whether there are enough */
  const regather = async (attempt: number): Promise<boolean> => {
    try {
      plan = await members.gather(attempt)
    } catch (error) {
      if (!isTsrError(error)) throw error
      announcer.say('rendezvous', error.message, { code: error.code })
      return false
    }
    lost = []
    hasLeft = false
    change = undefined
    watchAll()
    return true
  }

  const conclude = async (restartCount: number, own: NodeReport): Promise<Conclusion> => {
    const others = [...watched].map(([id, { gone }]) =>
      // A lost node sends no report.
      receive(store, keys.report(restartCount, id), reportMessage, { signal: gone.signal }).then(
        unpackReport,
        (error: unknown) => {
          const isRead = isTsrError(error) && error.code === 'ERR_TSR_MESSAGE_INVALID'
          if (isRead) lose(id, 'its report cannot be read')
          return undefined
        },
      ),
    )
    // If a node is lost from now on, end the attempt on the other nodes, too.
    halt.signal.addEventListener('abort', () => {
      tellFailing(restartCount)
    })
    if (halt.signal.aborted) tellFailing(restartCount)
    const reports = [own, ...(await Promise.all(others))].filter((report) => report !== undefined)
    current = undefined
    const { maxRestarts } = restart
    const evidence = { plan, reports, lost, hasLeft, change, restarts: budget.used, maxRestarts }
    let verdict = judge({ ...evidence, isElastic })
    if (goesOn(verdict) && isElastic && !(await regather(restartCount + 1))) {
      verdict = judge({ ...evidence, lost, hasLeft })
    }
    await post(store, keys.verdict(restartCount), budget.take(verdict))
    return { verdict, reports }
  }

  members.onArrival = ({ node }) => {
    if (!isElastic || current === undefined) return
    change = `${node.host} has joined`
    halt.abort()
    tellFailing(current)
  }
  members.onLeave = ({ id }) => {
    lose(id, 'its launcher has ended')
  }
  watchAll()
  const listening = setInterval(() => {
    for (const { monitor } of watched.values()) monitor.tick()
  }, HEARTBEAT)
  shareInterrupts(store, plan.nodes[0]!, interrupts, false).catch(() => undefined)

  return {
    nodeRank: 0,
    firstAttempt: 0,
    get plan() {
      return plan
    },
    begin(restartCount) {
      const own = new AbortController()
      halt = own
      current = restartCount
      budget.begin()
      if (lost.length > 0) own.abort()
      // Every node has finished the second-last attempt, so nobody reads its keys.
      forgetAttempt(store, restartCount - 2).catch(() => undefined)
      haltAtFailure(store, restartCount, own)
      return {
        halt: own.signal,
        fail: () => {
          tellFailing(restartCount)
        },
        conclude: (report) => conclude(restartCount, report),
      }
    },
    async close() {
      const left = [...watched.values()].map(({ gone }) => aborted(gone.signal))
      await Promise.race([Promise.all(left), pause(CLOSING_TIME)])
      clearInterval(listening)
      members.close()
      await jobStore.close()
    },
  }
}
