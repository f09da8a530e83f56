import {
  isCount,
  isFlag,
  isInteger,
  isNumber,
  isObject,
  isText,
  listOf,
  nullable,
  objectOf,
  oneOf,
  optional,
  type SerializedTsrError,
  type Shape,
} from '@tsrun/core'
import { isFlightDump } from '@tsrun/distributed/record'
import type { NodePlan, NodeReport, Restart, StoreEndpoint, Verdict } from '../job/nodes.ts'
import { isErrorReport, isResourceUsage } from '../processes/control-messages.ts'
import type { Interruption } from '../processes/interrupts.ts'
import type { MemoryEvents } from '../report/explanation.ts'
import type { Failure, HostFacts, LostNode, NodeFailure } from '../report/failure.ts'
import type { RankOutcome, RankPlace } from '../report/outcome.ts'
import type { Registration } from './registration.ts'

/*
 * What launchers send each other. Every holder of the job's token can write these, and a launcher of
 * another version does: the worst that may happen is an error that says so.
 */

/** What a node is told when it takes part. */
export interface Invitation {
  readonly plan: NodePlan
  readonly attempt: number
}

/** A node that wants to join. */
export interface Arrival {
  readonly id: string
  readonly node: Registration
  /** The address of the store that it has used. */
  readonly storeAddress: string
}

/** Hosts, and ranks of a host, beyond which a message is taken for a mistake. */
const MOST = 1 << 20

const isRegistration = objectOf<Registration>({
  nodeRank: optional(isCount),
  nnodes: isCount,
  minNodes: isCount,
  nproc: isCount,
  host: isText,
  pid: isCount,
  identity: isText,
  address: isText,
  role: isText,
  rdzvId: optional(isText),
  version: isText,
  node: isText,
  script: isText,
  digest: isText,
})

export const isArrival = objectOf<Arrival>({
  id: isText,
  node: isRegistration,
  storeAddress: isText,
})

const isPort = (value: unknown): value is number => isCount(value) && value <= 65_535

const isNode = objectOf<NodePlan['nodes'][number]>({
  id: isText,
  nodeRank: isCount,
  nproc: (value): value is number => isCount(value) && value <= MOST,
  host: isText,
  address: isText,
  role: isText,
})

const isPlan = objectOf<NodePlan>({
  runId: isText,
  master: objectOf<StoreEndpoint>({ host: isText, port: isPort, freePort: optional(isPort) }),
  nodes: (value): value is NodePlan['nodes'] => listOf(isNode, MOST)(value) && value.length > 0,
})

/** A plan that the node with this id is part of. */
export function planWith(id: string): Shape<NodePlan> {
  return (value): value is NodePlan => isPlan(value) && value.nodes.some((node) => node.id === id)
}

export function invitationOf(id: string): Shape<Invitation> {
  return objectOf<Invitation>({ plan: planWith(id), attempt: isCount })
}

/** The rest is checked by `reviveTsrError`. */
export const isSentError = isObject as Shape<Readonly<Record<string, unknown>> & SerializedTsrError>

const isSignal = (value: unknown): value is NodeJS.Signals =>
  isText(value) && /^SIG[A-Z0-9+-]+$/.test(value)

const isPlace = objectOf<RankPlace>({
  state: oneOf('starting', 'running', 'operation', 'left'),
  operation: optional(isText),
  group: optional(isText),
  sequence: isNumber,
  milliseconds: isNumber,
  isStopped: isFlag,
})

const isOutcome = objectOf<RankOutcome>({
  rank: isCount,
  pid: isCount,
  exitCode: nullable(isInteger),
  signal: nullable(isSignal),
  startedAt: isNumber,
  endedAt: isNumber,
  stopSignal: optional(oneOf('SIGTERM', 'SIGKILL')),
  // JSON turns what is not finite into null
  stoppedAt: nullable(isNumber) as Shape<number>,
  error: optional(isErrorReport),
  exitedAt: optional(isText),
  stderrTail: listOf(isText),
  heapExhausted: isFlag,
  usage: optional(isResourceUsage),
  place: optional(isPlace),
})

const isMemory = objectOf<MemoryEvents>({
  kills: nullable(isNumber) as Shape<number>,
  available: optional(isNumber),
  limit: optional(isNumber),
})

const isFacts = objectOf<HostFacts>({
  host: isText,
  memory: isMemory,
  logs: optional(isText),
  isDetailed: optional(isFlag),
  records: optional(isText),
})

export const isReport = objectOf<NodeReport>({
  nodeRank: isCount,
  outcomes: listOf(isOutcome, MOST),
  interruption: optional(objectOf<Interruption>({ exitCode: isCount, reason: optional(isText) })),
  facts: isFacts,
  flight: listOf(isFlightDump, MOST),
})

const lost = { node: isCount, host: isText, address: isText, reason: isText } as const

const isNodeFailure = objectOf<NodeFailure>({
  ...lost,
  ranks: listOf(isCount),
  others: listOf(isText),
  jobExitCode: isCount,
}) satisfies Shape<LostNode>

const isFailure = objectOf<Failure>({
  rank: isCount,
  worldSize: isCount,
  pid: isCount,
  host: isText,
  ended: isText,
  exitCode: nullable(isInteger),
  signal: nullable(isSignal),
  seconds: isNumber,
  explanation: optional(isText),
  last: optional(isText),
  error: optional(isText),
  what: optional(isText),
  code: optional(isText),
  stderr: listOf(isText),
  others: listOf(isText),
  findings: listOf(isText),
  logs: optional(isText),
  records: optional(isText),
  jobExitCode: isCount,
})

const isRestart = objectOf<Restart>({ number: isCount, of: isCount })

type VerdictOf<Kind extends Verdict['kind']> = Extract<Verdict, { kind: Kind }>

const verdicts: { readonly [Kind in Verdict['kind']]: Shape<VerdictOf<Kind>> } = {
  success: objectOf<VerdictOf<'success'>>({ kind: oneOf('success') }),
  interrupted: objectOf<VerdictOf<'interrupted'>>({
    kind: oneOf('interrupted'),
    exitCode: isCount,
  }),
  failure: objectOf<VerdictOf<'failure'>>({
    kind: oneOf('failure'),
    failure: isFailure,
    restart: optional(isRestart),
  }),
  change: objectOf<VerdictOf<'change'>>({ kind: oneOf('change'), reason: isText }),
  lost: objectOf<VerdictOf<'lost'>>({ kind: oneOf('lost'), failure: isNodeFailure }),
}

export const isVerdict = (value: unknown): value is Verdict =>
  Object.values(verdicts).some((of: Shape<unknown>) => of(value))
