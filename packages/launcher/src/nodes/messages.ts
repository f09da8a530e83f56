import { anything, monotonicNow, parseJson, tsrError, type Of, type Schema } from '@tsrun/core'
import type { Store, StoreCallOptions } from '@tsrun/store'
import type { FlightDump } from '@tsrun/distributed/record'
import { tailOfFlight } from '../job/failure/flight-merge.ts'
import { isLeave } from '../job/nodes.ts'
import type { Interrupts } from '../job/process/interrupts.ts'
import {
  interruptMessage,
  type Interruption,
  type NodeFacts,
  type NodeReport,
} from '../protocol/nodes.ts'

/** Keys of the store through which launchers exchange messages. */
export const keys = {
  /** Queue of the ids of nodes that want to join. */
  joining: 'nodes/joining',
  /** The facts of a node; the key is deleted when the node's launcher ends. */
  node: (id: string) => `nodes/node/${id}`,
  /** The node ranks that have not arrived yet. */
  missing: 'nodes/missing',
  /** The error for every node if the job cannot start. */
  refused: 'nodes/refused',
  /** The plan of a node's first attempt. */
  invitation: (id: string) => `nodes/invitation/${id}`,
  /** The reason why one node cannot join. The other nodes continue. */
  declined: (id: string) => `nodes/declined/${id}`,
  /** The plan of an attempt after the first one. */
  plan: (attempt: number) => `nodes/attempt/${attempt}/plan`,
  /** The job was interrupted, for example by Ctrl-C. A second message ends the grace period. */
  interrupt: 'nodes/interrupt',
  /** A node leaves an elastic job, which continues without it. */
  leaving: (id: string) => `nodes/leaving/${id}`,
  attempt: (attempt: number) => `nodes/attempt/${attempt}/`,
  /** Prefix of the keys that ranks use in one attempt. */
  world: (attempt: number) => `world/${attempt}/`,
  heartbeat: (id: string) => `nodes/heartbeat/${id}`,
  failing: (attempt: number) => `nodes/attempt/${attempt}/failing`,
  report: (attempt: number, id: string) => `nodes/attempt/${attempt}/report/${id}`,
  verdict: (attempt: number) => `nodes/attempt/${attempt}/verdict`,
} as const

export async function post(store: Store, key: string, message: unknown): Promise<void> {
  await store.set(key, JSON.stringify(message))
}

/** Posts a message without waiting. If the connection fails, the message is lost. */
export function tell(store: Store, key: string, message: unknown): void {
  post(store, key, message).catch(() => undefined)
}

/** Aborts the signal when any node says that the attempt fails. */
export function haltAtFailure(store: Store, attempt: number, halt: AbortController): void {
  receive(store, keys.failing(attempt), anything()).then(
    () => {
      halt.abort()
    },
    () => undefined,
  )
}

/** Removes the keys of an attempt, because otherwise the store would grow with each attempt. */
export async function forgetAttempt(store: Store, attempt: number): Promise<void> {
  for (const folder of [keys.attempt(attempt), keys.world(attempt)]) {
    for (const key of await store.list(folder)) await store.delete(key)
  }
}

/** Waits for a message, by default without a time limit. */
export async function receive<T>(
  store: Store,
  key: string,
  of: Schema<T>,
  options: StoreCallOptions = {},
): Promise<T> {
  const value = await store.get(key, { timeout: Infinity, ...options })
  const message = parse(value, of)
  if (message !== undefined) return message
  const reason = `it is none of the messages of launchers under ${key}`
  throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: value.byteLength, reason })
}

/** The message; undefined if it does not match the schema. */
export function parse<T>(value: Uint8Array, of: Schema<T>): T | undefined {
  return parseJson(Buffer.from(value).toString(), of)
}

/**
 * Forwards Ctrl-C and other signals between the launchers of all hosts.
 *
 * @param mayLeave - whether the job can continue without this host
 */
export async function shareInterrupts(
  store: Store,
  own: NodeFacts,
  interrupts: Interrupts,
  mayLeave: boolean,
): Promise<void> {
  const { id: by, nodeRank, host } = own
  const share = (now: boolean): void => {
    const interruption = interrupts.stop.reason as Interruption
    if (mayLeave && isLeave(interruption)) {
      tell(store, keys.leaving(by), 0)
      return
    }
    if (foreign) return
    const { exitCode, reason: why = 'the output is not read any more' } = interruption
    const reason = `${why} on node ${nodeRank} (${host})`
    const message: Of<typeof interruptMessage> = { by, exitCode, reason, now }
    tell(store, keys.interrupt, message)
  }
  let foreign = false
  await store.watch(keys.interrupt, ({ value }) => {
    const message = value && parse(value, interruptMessage)
    if (message === undefined || message.by === by) return
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
    if (signal.aborted) share(now)
    signal.addEventListener('abort', () => {
      share(now)
    })
  }
}

/** The maximum number of failed ranks whose last stderr lines are sent. Many ranks fail in the same way. */
const TAILS = 16

/** Converts times to wall-clock time, because monotonic clocks of hosts are unrelated. */
export function packReport(report: NodeReport): NodeReport {
  const failed = report.outcomes.filter(({ exitCode, stopSignal }) => exitCode !== 0 && !stopSignal)
  const withTail = new Set(failed.slice(0, TAILS).map(({ rank }) => rank))
  const outcomes = report.outcomes.map((outcome) =>
    withTail.has(outcome.rank) || outcome.error ? outcome : { ...outcome, stderrTail: [] },
  )
  const flight = shortenFlight(report.flight)
  return shifted({ ...report, outcomes, flight }, Date.now() - monotonicNow())
}

/** The limits of the flight records that are sent: operations of each rank, and bytes of all ranks. */
const OPERATIONS = 50
const FLIGHT_BYTES = 4 << 20

/** Shortens the flight records until they fit, with the same number of operations each. */
export function shortenFlight(dumps: readonly FlightDump[], room = FLIGHT_BYTES): FlightDump[] {
  for (let count = OPERATIONS; count > 0; count >>= 1) {
    const tails = dumps.map((dump) => tailOfFlight(dump, count))
    if (JSON.stringify(tails).length <= room) return tails
  }
  return []
}

export function unpackReport(report: NodeReport): NodeReport {
  return shifted(report, monotonicNow() - Date.now())
}

function shifted(report: NodeReport, by: number): NodeReport {
  const outcomes = report.outcomes.map((outcome) => {
    const { startedAt, endedAt, stoppedAt, error } = outcome
    return {
      ...outcome,
      startedAt: startedAt + by,
      endedAt: endedAt + by,
      stoppedAt: stoppedAt && stoppedAt + by,
      error: error && { ...error, at: error.at + by },
    }
  })
  return { ...report, outcomes }
}
