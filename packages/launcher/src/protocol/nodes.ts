import {
  choice,
  count,
  either,
  flag,
  integer,
  isObject,
  list,
  number,
  object,
  text,
  where,
  type Of,
  type Schema,
  type SerializedTsrError,
} from '@tsrun/core'
import { flightDump } from '@tsrun/distributed/record'
import { errorReport, resourceUsage } from './control.ts'

/*
 * The messages between launchers. Any holder of the job's token can write them, including a launcher of
 * another version. A malformed message must cause no more than an error that says so.
 */

/** Largest plausible number of hosts, and of ranks per host; more means a malformed message. */
const MOST = 1 << 20

/** The description that a node sends when it joins a job. */
const registration = object({
  /** The rank of the node; undefined: node 0 assigns a free one. */
  nodeRank: count().optional(),
  nnodes: count(),
  minNodes: count(),
  nproc: count(),
  host: text,
  pid: count(),
  /** See `hostIdentity`. */
  identity: text,
  /** The address at which other hosts reach its ranks. */
  address: text,
  role: text,
  rdzvId: text.optional(),
  version: text,
  script: text,
  /** The SHA-256 of the script, hexadecimal; '' for a program, which may differ between hosts. */
  digest: text,
})

/** A node that wants to join. */
export const arrivalMessage = object({
  id: text,
  node: registration,
  /** The address at which the node reached the store. */
  storeAddress: text,
})

const port = count({ to: 65_535 })

const nodeFacts = object({
  /** Unlike the node rank, the ID stays the same when other nodes leave. */
  id: text,
  nodeRank: count(),
  nproc: count({ to: MOST }),
  host: text,
  address: text,
  role: text,
})

/** The host and port at which the store of a job listens. */
const storeEndpoint = object({
  host: text,
  port,
  /** A port at which the ranks themselves may listen; see `RankEnvironment`. */
  freePort: port.optional(),
})

/** The plan that node 0 makes and all nodes receive before the first rank starts. */
const nodePlan = object({
  runId: text,
  /** An address of the store that every host can reach. */
  master: storeEndpoint,
  /** The nodes in the order of their node ranks. */
  nodes: list(nodeFacts, MOST).refine((nodes) => nodes.length > 0),
})

/** A plan that contains the node with this ID. */
export function planWith(id: string): Schema<NodePlan> {
  return nodePlan.refine(({ nodes }) => nodes.some((node) => node.id === id))
}

/** The message that tells a node that it may join. */
export function invitationOf(id: string) {
  return object({ plan: planWith(id), attempt: count() })
}

/** An error, whose fields `reviveTsrError` checks. */
export const errorMessage = where<SerializedTsrError>(isObject, 'an error')

/** The job was interrupted, for example by Ctrl-C. */
export const interruptMessage = object({
  /** The ID of the interrupted node. */
  by: text,
  exitCode: count(),
  reason: text,
  /** True to kill the ranks without a grace period. */
  now: flag,
})

const signal = text.refine((name) => /^SIG[A-Z0-9+-]+$/.test(name)) as Schema<NodeJS.Signals>

/** The rank's activity when the launcher began to stop the job, from the status page. */
const rankPlace = object({
  state: choice('starting', 'running', 'operation', 'left'),
  /** The current or last operation; undefined before the first. */
  operation: text.optional(),
  group: text.optional(),
  sequence: number,
  milliseconds: number,
  /** Suspended by SIGSTOP or by a debugger. */
  isSuspended: flag,
})

/** The end of one rank: its exit, and evidence for the cause. */
const outcome = object({
  rank: count(),
  pid: count(),
  exitCode: integer.nullable(),
  signal: signal.nullable(),
  /** Milliseconds of the host's monotonic clock; also the unit of `endedAt` and `stoppedAt`. */
  startedAt: number,
  endedAt: number,
  /** The signal that stopped the rank, and its time; undefined if the rank ended by itself. */
  stopSignal: choice('SIGTERM', 'SIGKILL').optional(),
  stoppedAt: number.optional(),
  error: errorReport.optional(),
  /** The stack of the call of process.exit() with a code other than 0. */
  exitedAt: text.optional(),
  stderrTail: list(text),
  /** V8 reported that the JavaScript heap is exhausted. */
  heapExhausted: flag,
  usage: resourceUsage.optional(),
  /** Undefined if the rank had not joined a group, or if there is no status page. */
  place: rankPlace.optional(),
})

/** The reason why a job is interrupted. */
const interruption = object({
  /** The exit code of the launcher. */
  exitCode: count(),
  /** The reason to print; undefined prints no message. */
  reason: text.optional(),
})

const memoryEvents = object({
  /** Out-of-memory kills since the job started; undefined when unknown. */
  kills: number.optional(),
  /** Limit of the cgroup of this process, in bytes. */
  limit: number.optional(),
  /** The limits on processes and address space, from `describeLimits`. */
  limits: text.optional(),
})

/** Facts about a host, for the report of a failed rank. */
const hostFacts = object({
  host: text,
  memory: memoryEvents,
  logs: text.optional(),
  /** True to show library frames in stacks. */
  isDetailed: flag.optional(),
  /** The temporary folder that holds the flight records, if any. */
  records: text.optional(),
})

/** The outcomes of the ranks of one node. */
export const reportMessage = object({
  nodeRank: count(),
  outcomes: list(outcome, MOST),
  /** Set if the node was interrupted, for example by Ctrl-C, before any rank failed. */
  interruption: interruption.optional(),
  facts: hostFacts,
  /** The flight records of the node's ranks. For other nodes, only the newest entries. */
  flight: list(flightDump, MOST),
})

/** The facts of a failed attempt of a job, for the printed report and for JSON. */
const failure = object({
  runId: text.optional(),
  rank: count(),
  worldSize: count(),
  pid: count(),
  host: text,
  /** For example `exited with code 3` or `was killed by SIGSEGV`. */
  ended: text,
  exitCode: integer.nullable(),
  signal: signal.nullable(),
  /** Seconds from the start of the rank until its failure. */
  seconds: number,
  explanation: text.optional(),
  /** The last operation of the rank, if other ranks timed out waiting for it. */
  last: text.optional(),
  /** The error as Node prints it, with its stack. */
  error: text.optional(),
  /** The error in one line: `TypeError: x is not a function`. */
  what: text.optional(),
  code: text.optional(),
  /** The last lines of the rank on stderr, without the error itself. */
  stderr: list(text),
  /** How the other ranks ended, in order of time. Ranks that ended alike share a line. */
  others: list(text),
  /** The findings of the merged flight records, one sentence each. */
  findings: list(text),
  logs: text.optional(),
  /** The temporary folder that holds the flight records, if any. */
  records: text.optional(),
  /** The exit code of the launcher. */
  jobExitCode: count(),
})

/** The facts of a job that failed because it lost a host, for the printed report and for JSON. */
const nodeFailure = object({
  runId: text.optional(),
  node: count(),
  host: text,
  address: text,
  /** For example `its launcher has ended` or `it was silent for 30 s`. */
  reason: text,
  ranks: list(count()),
  others: list(text),
  jobExitCode: count(),
})

/** All ranks of all hosts restart. */
const restart = object({
  number: count(),
  /** The maximum number of restarts, which node 0 decides. */
  of: count(),
})

/** The outcome of an attempt of the whole job. */
export const verdictMessage = either(
  object({ kind: choice('success') }),
  object({ kind: choice('interrupted'), exitCode: count() }),
  object({ kind: choice('failure'), failure, restart: restart.optional() }),
  /** Nodes have joined or left: all ranks restart on the current nodes. */
  object({ kind: choice('change'), reason: text }),
  /** A host is gone, and no other can take its place. */
  object({ kind: choice('lost'), failure: nodeFailure }),
)

export type Registration = Of<typeof registration>
/** A node that has been assigned its number. */
export type NumberedNode = Registration & { readonly nodeRank: number }
export type Arrival = Of<typeof arrivalMessage>
export type NodeFacts = Of<typeof nodeFacts>
export type StoreEndpoint = Of<typeof storeEndpoint>
export type NodePlan = Of<typeof nodePlan>
export type Invitation = Of<ReturnType<typeof invitationOf>>
export type RankPlace = Of<typeof rankPlace>
export type RankOutcome = Of<typeof outcome>
export type Interruption = Of<typeof interruption>
export type MemoryEvents = Of<typeof memoryEvents>
export type HostFacts = Of<typeof hostFacts>
export type NodeReport = Of<typeof reportMessage>
export type Failure = Of<typeof failure>
export type NodeFailure = Of<typeof nodeFailure>
/** A host that vanished from a running job. */
export type LostNode = Pick<NodeFailure, 'node' | 'host' | 'address' | 'reason'>
export type Verdict = Of<typeof verdictMessage>
