/** The interface between a job and its nodes, the launchers on its hosts. `nodes/` implements it. */
import type { Interruption, NodePlan, NodeReport, Verdict } from '../protocol/nodes.ts'
import { TRY_AGAIN } from './failure/exit-codes.ts'

/** This node's position in the plan of the current or next attempt. */
export interface NodePlace {
  readonly plan: NodePlan
  readonly nodeRank: number
}

/** The launchers of a job, one on each host. */
export interface Nodes extends NodePlace {
  /** The first attempt that this node takes part in: 0 unless it has joined a running job. */
  readonly firstAttempt: number
  begin(restartCount: number): SharedAttempt
  /** Disconnects from the other nodes. Call this when the outcome of the last attempt is known. */
  close(): Promise<void>
}

export interface SharedAttempt {
  /** Aborted when the ranks here have to stop because of another node. */
  readonly halt: AbortSignal
  /** Tells the other nodes that a rank here has failed. Call this before stopping any rank. */
  readonly fail: () => void
  /** Reports how the ranks here ended. Resolves to the outcome of the attempt on all nodes. */
  readonly conclude: (report: NodeReport) => Promise<Conclusion>
}

export interface Conclusion {
  readonly verdict: Verdict
  /** The reports of all nodes. Only node 0 has them, or another node if node 0 is gone. */
  readonly reports: readonly NodeReport[] | undefined
}

/**
 * True for SIGTERM, which schedulers send before they take a host away: only this host leaves an elastic
 * job. Other signals, such as Ctrl-C, stop the whole job.
 */
export function isLeave(interruption: Interruption | undefined): boolean {
  return interruption?.reason === 'SIGTERM'
}

/**
 * Returns the exit code of the launcher after this host was interrupted. If the machine of an elastic job
 * is being removed, the code asks the scheduler to start the job on other hosts.
 */
export function exitCodeAt(interruption: Interruption, isElastic: boolean): number {
  return isElastic && isLeave(interruption) ? TRY_AGAIN : interruption.exitCode
}

export function worldSizeOf({ nodes }: Pick<NodePlan, 'nodes'>): number {
  return nodes.reduce((sum, { nproc }) => sum + nproc, 0)
}

/** Counts the ranks with this role on the nodes before `nodeRank`, by default on all nodes. */
export function roleSizeOf({ nodes }: NodePlan, role: string, nodeRank = nodes.length): number {
  return worldSizeOf({ nodes: nodes.slice(0, nodeRank).filter((node) => node.role === role) })
}

/** The ranks of one node. Node 0 has the first ranks, node 1 the next ranks, and so on. */
export function ranksOf({ nodes }: NodePlan, nodeRank: number): number[] {
  const first = worldSizeOf({ nodes: nodes.slice(0, nodeRank) })
  return Array.from({ length: nodes[nodeRank]?.nproc ?? 0 }, (_, i) => first + i)
}
