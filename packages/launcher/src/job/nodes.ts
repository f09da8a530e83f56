import { hostname } from 'node:os'
import type { Registration } from '../nodes/registration.ts'
import type { Interruption } from '../processes/interrupts.ts'
import type { NodeFailure } from '../report/failure-text.ts'
import type { Failure, Circumstances } from '../report/failure.ts'
import type { RankOutcome } from '../report/outcome.ts'
import type { Job } from './job.ts'

/** How the ranks of one node ended. */
export interface NodeReport {
  readonly nodeRank: number
  readonly outcomes: readonly RankOutcome[]
  /** Set when the node was stopped from outside before any rank failed. */
  readonly interruption: Interruption | undefined
  readonly circumstances: Circumstances
}

/** All ranks of all hosts will be started again. */
export interface Restart {
  readonly number: number
  /** The budget, that of node 0. */
  readonly of: number
}

/** What one life of the job as a whole has come to. */
export type Verdict =
  | { readonly kind: 'success' }
  | { readonly kind: 'interrupted'; readonly exitCode: number }
  | { readonly kind: 'failure'; readonly failure: Failure; readonly restart?: Restart }
  /** A host is gone; nobody can take its place. */
  | { readonly kind: 'lost'; readonly failure: NodeFailure }

/** One life of the job, as its nodes share it. */
export interface SharedLife {
  /** Aborted when the ranks here have to stop because of another node. */
  readonly halt: AbortSignal
  /** Tells the other nodes that a rank here has failed, before anything is stopped. */
  readonly fail: () => void
  /** Hands in how the ranks here ended; resolves when all nodes know what that makes. */
  readonly conclude: (report: NodeReport) => Promise<Verdict>
}

/** The launchers of a job, one a host, acting as one. */
export interface Nodes {
  readonly plan: NodePlan
  begin(restartCount: number): SharedLife
  /** Lets go of the others, once the last verdict is known. */
  close(): Promise<void>
}

/** One host of a job. */
export interface NodeFacts {
  readonly nodeRank: number
  readonly nproc: number
  readonly host: string
  readonly address: string
}

/** What all nodes of a job agree on before the first rank starts; node 0 makes it. */
export interface NodePlan {
  readonly runId: string
  /** Where the store listens, as every host reaches it. */
  readonly master: { readonly host: string; readonly port: number }
  /** In the order of their node ranks. */
  readonly nodes: readonly NodeFacts[]
}

export function makePlan(
  runId: string,
  master: NodePlan['master'],
  registrations: Iterable<Registration>,
): NodePlan {
  const nodes = [...registrations]
    .sort((a, b) => a.nodeRank - b.nodeRank)
    .map(({ nodeRank, nproc, host, address }) => ({ nodeRank, nproc, host, address }))
  return { runId, master, nodes }
}

/** The plan of a job on this host alone. */
export function planAlone(job: Job, master: NodePlan['master']): NodePlan {
  const { options, identity } = job
  const node = { nodeRank: 0, nproc: options.nproc, host: hostname(), address: master.host }
  return { runId: identity.runId, master, nodes: [node] }
}

/** What `--dry-run` shows: as if every node had as many ranks as this one. */
export function assumedPlan({ options, identity }: Job): NodePlan {
  const { nnodes, nproc, masterAddr, masterPort } = options
  const nodes = Array.from({ length: nnodes }, (_, nodeRank) => {
    return { nodeRank, nproc, host: '', address: '' }
  })
  return { runId: identity.runId, master: { host: masterAddr, port: masterPort }, nodes }
}

export function worldSizeOf({ nodes }: NodePlan): number {
  return nodes.reduce((sum, { nproc }) => sum + nproc, 0)
}

/** Ranks are counted through: those of node 0, then those of node 1, and so on. */
export function ranksOf({ nodes }: NodePlan, nodeRank: number): number[] {
  const first = nodes.slice(0, nodeRank).reduce((sum, { nproc }) => sum + nproc, 0)
  return Array.from({ length: nodes[nodeRank]?.nproc ?? 0 }, (_, i) => first + i)
}
