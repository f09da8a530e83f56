import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { hostIdentity } from '@tsrun/store'
import type { Job } from '../job/job.ts'
import { version } from '../job/package.ts'

/** What a node says about itself when it joins a job. */
export interface Registration {
  readonly nodeRank: number
  readonly nnodes: number
  readonly nproc: number
  /** Name of the host, and the process number of its launcher there. */
  readonly host: string
  readonly pid: number
  /** See `hostIdentity`. */
  readonly on: string
  /** Address at which its ranks are reached. */
  readonly address: string
  /** Version of tsrun. */
  readonly version: string
  readonly node: string
  readonly script: string
  /** SHA-256 of the script's file, hexadecimal. */
  readonly digest: string
}

export function describeSelf({ options, script }: Job, address: string): Registration {
  const { nodeRank, nnodes, nproc } = options
  return {
    nodeRank,
    nnodes,
    nproc,
    host: hostname(),
    pid: process.pid,
    on: hostIdentity(),
    address,
    version,
    node: process.version,
    script,
    digest: createHash('sha256').update(readFileSync(script)).digest('hex'),
  }
}

/** Why a node that wants to join does not fit to those that have; undefined if it does. */
export function findMisfit(
  newcomer: Registration,
  zero: Registration,
  joined: ReadonlyMap<number, Registration>,
): string | undefined {
  const { nnodes, nodeRank } = newcomer
  const who = `node ${nodeRank} (${nameOf(newcomer)})`
  if (newcomer.version !== zero.version) {
    return `${who} runs tsrun ${newcomer.version}, node 0 (${zero.host}) ${zero.version}`
  }
  if (nnodes !== zero.nnodes) {
    return `${who} was started with --nnodes ${nnodes}, node 0 (${zero.host}) with ${zero.nnodes}`
  }
  const twin = joined.get(nodeRank)
  if (twin !== undefined) return `${nameOf(newcomer)} and ${nameOf(twin)} both are node ${nodeRank}`
  if (newcomer.digest !== zero.digest) {
    const mine = `${newcomer.script}, SHA-256 ${newcomer.digest.slice(0, 8)}…`
    return `${who} has another script (${mine}) than node 0 (${zero.script}, ${zero.digest.slice(0, 8)}…)`
  }
  return undefined
}

/** The node whose ranks no other host could reach; undefined if all can be. */
export function findUnreachable(
  nodes: readonly Registration[],
  isLoopback: (address: string) => boolean,
): Registration | undefined {
  if (nodes.every(({ on }) => on === nodes[0]?.on)) return undefined
  return nodes.find(({ address }) => isLoopback(address))
}

function nameOf({ host, address, pid }: Registration): string {
  return `host ${host}, ${address}, process ${pid}`
}
