/*
 * What a job needs from its nodes. A node is the launcher on one host; `nodes/` implements this for one
 * host and for several.
 */
import type { FlightDump } from '@tsrun/distributed/record'
import type { Interruption } from '../processes/interrupts.ts'
import type { Failure, HostFacts, NodeFailure } from '../report/failure.ts'
import type { RankOutcome } from '../report/outcome.ts'

/** This node among the others, in the attempt that runs or is about to begin. */
export interface NodePlace {
  readonly plan: NodePlan
  readonly nodeRank: number
}

/** The launchers of a job, one on each host, acting as one. */
export interface Nodes extends NodePlace {
  /** The first attempt that this node takes part in: 0 unless it has joined a running job. */
  readonly firstAttempt: number
  begin(restartCount: number): SharedAttempt
  /** Leaves the other nodes, once the last verdict is known. */
  close(): Promise<void>
}

/** Where the store of a job listens. */
export interface StoreEndpoint {
  readonly host: string
  readonly port: number
  /** For what the ranks listen at themselves; see `RankEnvironment`. */
  readonly freePort?: number | undefined
}

/** What all nodes of a job agree on before the first rank starts. Node 0 makes it. */
export interface NodePlan {
  readonly runId: string
  /** Where the store listens, as every host reaches it. */
  readonly master: StoreEndpoint
  /** In the order of their node ranks. */
  readonly nodes: readonly NodeFacts[]
}

/** One host of a job. */
export interface NodeFacts {
  /** Stays the same when other nodes leave and its number changes. */
  readonly id: string
  readonly nodeRank: number
  readonly nproc: number
  readonly host: string
  readonly address: string
  /** Of its ranks. */
  readonly role: string
}

/** One attempt of the job, as its nodes share it. */
export interface SharedAttempt {
  /** Aborted when the ranks here have to stop because of another node. */
  readonly halt: AbortSignal
  /** Tells the other nodes that a rank here has failed, before anything is stopped. */
  readonly fail: () => void
  /** Hands in how the ranks here ended; resolves when all nodes know the verdict. */
  readonly conclude: (report: NodeReport) => Promise<Conclusion>
}

/** The end of an attempt, as one node knows it. */
export interface Conclusion {
  readonly verdict: Verdict
  /**
   * Those of all nodes, on the node that gives the account of the job: node 0, or another one once that is
   * gone. Undefined elsewhere.
   */
  readonly reports: readonly NodeReport[] | undefined
}

/** How the ranks of one node ended. */
export interface NodeReport {
  readonly nodeRank: number
  readonly outcomes: readonly RankOutcome[]
  /** Set when the node was stopped from outside before any rank failed. */
  readonly interruption: Interruption | undefined
  readonly facts: HostFacts
  /** The flight records of its ranks that left any: whole ones here, their ends from other nodes. */
  readonly flight: readonly FlightDump[]
}

/** How an attempt of the job as a whole has ended. */
export type Verdict =
  | { readonly kind: 'success' }
  | { readonly kind: 'interrupted'; readonly exitCode: number }
  | { readonly kind: 'failure'; readonly failure: Failure; readonly restart?: Restart }
  /** Nodes have joined or left: all ranks start again on those that there are now. */
  | { readonly kind: 'change'; readonly reason: string }
  /** A host is gone, and no other can take its place. */
  | { readonly kind: 'lost'; readonly failure: NodeFailure }

/** All ranks of all hosts will be started again. */
export interface Restart {
  readonly number: number
  /** The number of restarts that node 0 allows. */
  readonly of: number
}

export function worldSizeOf({ nodes }: NodePlan): number {
  return nodes.reduce((sum, { nproc }) => sum + nproc, 0)
}

/** How many ranks have this role, those of the nodes before `nodeRank` only or all of them. */
export function roleSizeOf({ nodes }: NodePlan, role: string, nodeRank = nodes.length): number {
  return nodes
    .slice(0, nodeRank)
    .filter((node) => node.role === role)
    .reduce((sum, { nproc }) => sum + nproc, 0)
}

/** The ranks of one node. Node 0 has the first ones, node 1 the next, and so on. */
export function ranksOf({ nodes }: NodePlan, nodeRank: number): number[] {
  const first = nodes.slice(0, nodeRank).reduce((sum, { nproc }) => sum + nproc, 0)
  return Array.from({ length: nodes[nodeRank]?.nproc ?? 0 }, (_, i) => first + i)
}
