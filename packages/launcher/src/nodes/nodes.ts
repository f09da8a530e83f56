import type { Interruption } from '../terminate/interrupts.ts'
import type { NodeFailure } from '../report/node-failure.ts'
import type { Failure, Circumstances } from '../report/failure.ts'
import type { RankOutcome } from '../report/outcome.ts'
import type { NodePlan } from './node-plan.ts'

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
