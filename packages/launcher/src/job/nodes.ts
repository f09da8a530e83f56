/*
 * What a job needs from its nodes. A node is the launcher on one host; `nodes/` implements this for one
 * host and for several.
 */
import type { NodePlan, NodeReport, Verdict } from '../protocol/nodes.ts'

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
