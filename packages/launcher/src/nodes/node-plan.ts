import { hostname } from 'node:os'
import type { Job } from '../job.ts'
import type { Registration } from './registration.ts'

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
