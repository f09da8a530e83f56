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
 * What launchers send each other. Every holder of the job's token can write these, and a launcher of
 * another version does: the worst that may happen is an error that says so.
 */

/** Hosts, and ranks of a host, beyond which a message is taken for a mistake. */
const MOST = 1 << 20

/** What a node says about itself when it joins a job. */
const registration = object({
  /** Undefined: whichever is free when it arrives. */
  nodeRank: count().optional(),
  nnodes: count(),
  minNodes: count(),
  nproc: count(),
  /** The name of the host, and the process id of its launcher. */
  host: text,
  pid: count(),
  /** See `hostIdentity`. */
  identity: text,
  /** The address at which its ranks are reached. */
  address: text,
  role: text,
  /** `--rdzv-id` */
  rdzvId: text.optional(),
  /** The version of tsrun. */
  version: text,
  node: text,
  script: text,
  /** The SHA-256 of the script's file, hexadecimal; '' for a program, which each host has its own of. */
  digest: text,
})

/** A node that wants to join. */
export const arrivalMessage = object({
  id: text,
  node: registration,
  /** The address of the store that it has used. */
  storeAddress: text,
})

const port = count({ to: 65_535 })

/** One host of a job. */
const nodeFacts = object({
  /** Stays the same when other nodes leave and its number changes. */
  id: text,
  nodeRank: count(),
  nproc: count({ to: MOST }),
  host: text,
  address: text,
  /** Of its ranks. */
  role: text,
})

/** Where the store of a job listens. */
const storeEndpoint = object({
  host: text,
  port,
  /** For what the ranks listen at themselves; see `RankEnvironment`. */
  freePort: port.optional(),
})

/** What all nodes of a job agree on before the first rank starts. Node 0 makes it. */
const nodePlan = object({
  runId: text,
  /** Where the store listens, as every host reaches it. */
  master: storeEndpoint,
  /** In the order of their node ranks. */
  nodes: list(nodeFacts, MOST).refine((nodes) => nodes.length > 0),
})

/** A plan that the node with this id is part of. */
export function planWith(id: string): Schema<NodePlan> {
  return nodePlan.refine(({ nodes }) => nodes.some((node) => node.id === id))
}

/** What a node is told when it takes part. */
export function invitationOf(id: string): Schema<Invitation> {
  return object({ plan: planWith(id), attempt: count() })
}

/** The rest is checked by `reviveTsrError`. */
export const errorMessage = where<SerializedTsrError>(isObject, 'an error')

/** The job was stopped from outside. */
export const interruptMessage = object({
  /** The id of the node that it comes from. */
  by: text,
  exitCode: count(),
  reason: text,
  /** Without grace. */
  now: flag,
})

const signal = text.refine((name) => /^SIG[A-Z0-9+-]+$/.test(name)) as Schema<NodeJS.Signals>

/** What a rank was doing, as the status page told when the launcher began to stop the job. */
const rankPlace = object({
  state: choice('starting', 'running', 'operation', 'left'),
  /** The current operation, or the last one; undefined: none so far. */
  operation: text.optional(),
  group: text.optional(),
  sequence: number,
  /** Milliseconds that it had been in this state. */
  milliseconds: number,
  /** By SIGSTOP, or by a debugger. */
  isSuspended: flag,
})

/** How one rank ended, and all that is known about why. */
const outcome = object({
  rank: count(),
  pid: count(),
  exitCode: integer.nullable(),
  signal: signal.nullable(),
  /** On the host's monotonic clock, milliseconds. */
  startedAt: number,
  endedAt: number,
  /** The signal with which the launcher stopped the rank; undefined: it ended by itself. */
  stopSignal: choice('SIGTERM', 'SIGKILL').optional(),
  /** Infinity: it was not stopped. */
  stoppedAt: number.nullable(),
  /** The uncaught error before its end. */
  error: errorReport.optional(),
  /** The stack of the call of process.exit() with a code other than 0. */
  exitedAt: text.optional(),
  stderrTail: list(text),
  /** V8 said that the JavaScript heap is exhausted. */
  heapExhausted: flag,
  usage: resourceUsage.optional(),
  /** Undefined for a rank that had not joined the job, and without a status page. */
  place: rankPlace.optional(),
})

/** Why a job is stopped from outside. */
const interruption = object({
  /** The exit code of the launcher. */
  exitCode: count(),
  /** For the message; undefined if there should be none. */
  reason: text.optional(),
})

/** What the kernel says about memory, as far as it can be read. */
const memoryEvents = object({
  /** The out-of-memory kills since the job started; NaN when unknown. */
  kills: number.nullable(),
  /** The bytes that can be allocated now without swapping. */
  available: number.optional(),
  /** The bytes that the cgroup of this process may use. */
  limit: number.optional(),
})

/** What is known about the host of the failed rank. */
const hostFacts = object({
  host: text,
  memory: memoryEvents,
  /** The folder of the log files, if there are any. */
  logs: text.optional(),
  /** Shows the frames of libraries in stacks, too. */
  isDetailed: flag.optional(),
  /** The temporary folder of the flight records, if there are any in one. */
  records: text.optional(),
})

/** How the ranks of one node ended, as JSON has it: null stands for numbers that are not finite. */
export const reportMessage = object({
  nodeRank: count(),
  outcomes: list(outcome, MOST),
  /** Set when the node was stopped from outside before any rank failed. */
  interruption: interruption.optional(),
  facts: hostFacts,
  /** The flight records of its ranks that left any: whole ones here, their ends from other nodes. */
  flight: list(flightDump, MOST),
})

/** The facts of a failed attempt of a job, for the report on screen and for JSON. */
const failure = object({
  rank: count(),
  worldSize: count(),
  pid: count(),
  host: text,
  /** `exited with code 3`, `was killed by SIGSEGV`. */
  ended: text,
  exitCode: integer.nullable(),
  signal: signal.nullable(),
  /** Seconds from its start until it failed. */
  seconds: number,
  explanation: text.optional(),
  /** What the rank did last, where others waited for it in vain. */
  last: text.optional(),
  /** The error as Node prints it, with its stack. */
  error: text.optional(),
  /** The error in one line: `TypeError: x is not a function`. */
  what: text.optional(),
  code: text.optional(),
  /** The last lines of the rank on stderr, without the error itself. */
  stderr: list(text),
  /** How the other ranks ended, in order of time: ranks that ended alike share a line. */
  others: list(text),
  /** What the flight recorders of the ranks show together, a sentence for each finding. */
  findings: list(text),
  logs: text.optional(),
  /** The temporary folder of the flight records, if they are in one. */
  records: text.optional(),
  /** The exit code of the launcher. */
  jobExitCode: count(),
})

/** The facts of a job that failed because a host is gone, for the report on screen and for JSON. */
const nodeFailure = object({
  node: count(),
  host: text,
  address: text,
  /** `its launcher has ended`, `it was silent for 30 s`. */
  reason: text,
  ranks: list(count()),
  others: list(text),
  jobExitCode: count(),
})

/** All ranks of all hosts will be started again. */
const restart = object({
  number: count(),
  /** The number of restarts that node 0 allows. */
  of: count(),
})

/** How an attempt of the job as a whole has ended. */
export const verdictMessage = either(
  object({ kind: choice('success') }),
  object({ kind: choice('interrupted'), exitCode: count() }),
  object({ kind: choice('failure'), failure, restart: restart.optional() }),
  /** Nodes have joined or left: all ranks start again on those that there are now. */
  object({ kind: choice('change'), reason: text }),
  /** A host is gone, and no other can take its place. */
  object({ kind: choice('lost'), failure: nodeFailure }),
)

export type Registration = Of<typeof registration>
/** A node that has its number. */
export type NumberedNode = Registration & { readonly nodeRank: number }
export type Arrival = Of<typeof arrivalMessage>
export type NodeFacts = Of<typeof nodeFacts>
export type StoreEndpoint = Of<typeof storeEndpoint>
export type NodePlan = Of<typeof nodePlan>
export interface Invitation {
  readonly plan: NodePlan
  readonly attempt: number
}
export type RankPlace = Of<typeof rankPlace>
export type RankOutcome = Omit<Of<typeof outcome>, 'stoppedAt'> & { readonly stoppedAt: number }
export type Interruption = Of<typeof interruption>
export type MemoryEvents = Omit<Of<typeof memoryEvents>, 'kills'> & { readonly kills: number }
export type HostFacts = Omit<Of<typeof hostFacts>, 'memory'> & { readonly memory: MemoryEvents }
export type ReportMessage = Of<typeof reportMessage>
export type NodeReport = Omit<ReportMessage, 'outcomes' | 'facts'> & {
  readonly outcomes: readonly RankOutcome[]
  readonly facts: HostFacts
}
export type Failure = Of<typeof failure>
export type NodeFailure = Of<typeof nodeFailure>
/** A host that vanished from a running job. */
export type LostNode = Pick<NodeFailure, 'node' | 'host' | 'address' | 'reason'>
export type Verdict = Of<typeof verdictMessage>
