import { monotonicNow } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { NodeReport, NodeFacts } from '../job/nodes.ts'
import type { Interruption, Interrupts } from '../processes/interrupts.ts'
import type { RankOutcome } from '../report/outcome.ts'

/** The keys under which launchers leave word for each other in the store. */
export const keys = {
  /** Queue of the ids of those who want to join. */
  joining: 'nodes/joining',
  /** Facts of a node; vanishes with its launcher. */
  node: (id: string) => `nodes/node/${id}`,
  /** Node ranks that have not come yet. */
  missing: 'nodes/missing',
  /** Why there will be no job: an error for every node. */
  refused: 'nodes/refused',
  plan: 'nodes/plan',
  /** Somebody stopped the job; a second time: without grace. */
  interrupt: 'nodes/interrupt',
  beat: (node: number) => `nodes/beat/${node}`,
  failing: (life: number) => `nodes/life/${life}/failing`,
  report: (life: number, node: number) => `nodes/life/${life}/report/${node}`,
  verdict: (life: number) => `nodes/life/${life}/verdict`,
} as const

export async function post(store: Store, key: string, message: unknown): Promise<void> {
  await store.set(key, JSON.stringify(message))
}

/** Waits for what somebody will post, for as long as it takes. */
export async function receive<T>(store: Store, key: string, signal?: AbortSignal): Promise<T> {
  return parse(await store.get(key, { timeout: Infinity, ...(signal && { signal }) })) as T
}

export function parse(value: Uint8Array): unknown {
  return JSON.parse(Buffer.from(value).toString())
}

/** Last lines on stderr are sent for so many ranks that failed; the rest of a crowd died alike. */
const TAILS = 16

/** Times travel as wall-clock time: the monotonic clocks of hosts have nothing in common. */
export function packReport(report: NodeReport): NodeReport {
  const failed = report.outcomes.filter(({ exitCode, stopSignal }) => exitCode !== 0 && !stopSignal)
  const spoken = new Set(failed.slice(0, TAILS).map(({ rank }) => rank))
  return shifted(report, Date.now() - monotonicNow(), (outcome) =>
    spoken.has(outcome.rank) || outcome.error !== undefined ? outcome.stderrTail : [],
  )
}

export function unpackReport(report: NodeReport): NodeReport {
  return shifted(report, monotonicNow() - Date.now(), ({ stderrTail }) => stderrTail)
}

function shifted(
  report: NodeReport,
  by: number,
  tailOf: (outcome: RankOutcome) => readonly string[],
): NodeReport {
  const outcomes = report.outcomes.map((outcome) => {
    const { startedAt, endedAt, stoppedAt, error } = outcome
    return {
      ...outcome,
      startedAt: startedAt + by,
      endedAt: endedAt + by,
      // JSON has no Infinity: null comes back
      stoppedAt: ((stoppedAt as number | null) ?? Infinity) + by,
      error: error && { ...error, at: error.at + by },
      stderrTail: tailOf(outcome),
    }
  })
  const { memory } = report.circumstances
  const kills = (memory.kills as number | null) ?? NaN
  const circumstances = { ...report.circumstances, memory: { ...memory, kills } }
  return { ...report, outcomes, circumstances }
}

interface SharedInterrupt {
  readonly by: number
  readonly exitCode: number
  readonly reason: string
  /** Without grace. */
  readonly now: boolean
}

/** Passes Ctrl-C and other signals of one host on to all others, and theirs to this one. */
export async function shareInterrupts(
  store: Store,
  own: NodeFacts,
  interrupts: Interrupts,
): Promise<void> {
  const tell = (now: boolean): void => {
    const { exitCode, reason = 'nobody reads the output' } = interrupts.stop.reason as Interruption
    const where = ` on node ${own.nodeRank} (${own.host})`
    const message: SharedInterrupt = { by: own.nodeRank, exitCode, reason: reason + where, now }
    if (!foreign) post(store, keys.interrupt, message).catch(() => undefined)
  }
  let foreign = false
  await store.watch(keys.interrupt, ({ value }) => {
    const message = value && (parse(value) as SharedInterrupt)
    if (message === undefined || message.by === own.nodeRank) return
    if (!interrupts.stop.aborted) {
      foreign = true
      interrupts.interrupt({ exitCode: message.exitCode, reason: message.reason })
    }
    if (message.now) interrupts.force()
  })
  for (const [signal, now] of [
    [interrupts.stop, false],
    [interrupts.kill, true],
  ] as const) {
    if (signal.aborted) tell(now)
    signal.addEventListener('abort', () => {
      tell(now)
    })
  }
}
