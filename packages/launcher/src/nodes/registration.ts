import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { hostIdentity, isLoopback } from '@tsrun/store'
import type { Job } from '../job/job.ts'
import { version } from '../package.ts'
import type { NumberedNode, Registration } from '../protocol/nodes.ts'

export function describeSelf(job: Job, address: string): Registration {
  const { script } = job
  const { nodeRank, nnodes, minNodes, nproc, role } = job.placement
  return {
    nodeRank,
    nnodes,
    minNodes,
    nproc,
    role,
    rdzvId: job.rendezvous.rdzvId,
    host: hostname(),
    pid: process.pid,
    identity: hostIdentity(),
    address,
    version,
    node: process.version,
    script,
    digest:
      job.program.kind === 'program'
        ? ''
        : createHash('sha256').update(readFileSync(script)).digest('hex'),
  }
}

/** Why a joining node does not match the nodes that have joined; undefined if it does. */
export function findMismatch(
  newcomer: NumberedNode,
  nodeZero: Registration,
  joined: ReadonlyMap<number, Registration>,
): string | undefined {
  const { nodeRank } = newcomer
  const [mine, others] = [newcomer, nodeZero].map(({ minNodes, nnodes }) =>
    minNodes === nnodes ? String(nnodes) : `${minNodes}:${nnodes}`,
  )
  const who = `node ${nodeRank} (${nameOf(newcomer)})`
  if (newcomer.version !== nodeZero.version) {
    return `${who} runs tsrun ${newcomer.version}, and node 0 (${nodeZero.host}) runs ${nodeZero.version}`
  }
  if (mine !== others) {
    return `${who} was started with --nnodes ${mine!}, and node 0 (${nodeZero.host}) with ${others!}`
  }
  if (newcomer.rdzvId !== nodeZero.rdzvId) {
    const [own, other] = [newcomer.rdzvId, nodeZero.rdzvId].map((id) => id ?? 'none')
    return `${who} was started with --rdzv-id ${own!}, and node 0 (${nodeZero.host}) with ${other!}`
  }
  const twin = joined.get(nodeRank)
  if (twin !== undefined) return `${nameOf(newcomer)} and ${nameOf(twin)} are both node ${nodeRank}`
  if (newcomer.digest !== nodeZero.digest) {
    const own = `${newcomer.script}, SHA-256 ${newcomer.digest.slice(0, 8)}…`
    return `${who} has a different script (${own}) from node 0 (${nodeZero.script}, ${nodeZero.digest.slice(0, 8)}…)`
  }
  return undefined
}

/** A node whose ranks other hosts cannot reach; undefined if there is none. */
export function findUnreachable(nodes: readonly NumberedNode[]): NumberedNode | undefined {
  if (nodes.every(({ identity }) => identity === nodes[0]?.identity)) return undefined
  return nodes.find(({ address }) => isLoopback(address))
}

function nameOf({ host, address, pid }: Registration): string {
  return `host ${host}, ${address}, process ${pid}`
}
