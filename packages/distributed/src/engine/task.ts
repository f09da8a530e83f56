import { monotonicNow, type TsrError } from '@tsrun/core'
import type { Resumable, Waited } from '../algorithms/channel.ts'
import { dtypes } from '../dtype.ts'
import type { RunningOperation } from '../transports/transport-collectives.ts'
import type { EngineGroup } from './group.ts'
import {
  ANY_SOURCE,
  describeFingerprint,
  fingerprintOf,
  isCollective,
  isNative,
  type Fingerprint,
  type Operation,
} from '../operation.ts'
import type { Stream } from './stream.ts'
import type { Transfer } from './transfer.ts'

/** An operation that the engine runs. Times are `monotonicNow()`. */
export class Task implements RunningOperation {
  readonly operation: Operation
  readonly group: EngineGroup
  readonly fingerprint: Fingerprint
  steps: Resumable | undefined
  readonly posted = monotonicNow()
  started = 0
  completed = 0
  readonly deadline: number
  /** Whether it has asked the ranks it waits for what they run. */
  hasInquired = false
  state: 'running' | 'done' | 'failed' = 'running'
  error: TsrError | undefined
  waitingFor: Waited | undefined
  /** Transfers that are not done, for cancellation. */
  readonly open = new Set<Transfer>()
  /** Streams of a collective, by group rank; they end with it. */
  readonly streams: (Stream | undefined)[] = []
  /** Blocks of engine memory to release at the end. */
  readonly scratch: number[] = []
  readonly onSettled: (task: Task) => void
  readonly #onReady: (task: Task) => void

  /** @param onReady - called when it can continue */
  constructor(
    operation: Operation,
    group: EngineGroup,
    onSettled: (task: Task) => void,
    onReady: (task: Task) => void,
  ) {
    this.operation = operation
    this.group = group
    this.fingerprint = fingerprintOf(operation, dtypes[operation.dtype].code)
    this.deadline = this.posted + operation.timeout
    this.onSettled = onSettled
    this.#onReady = onReady
  }

  resume(waited: Waited): void {
    if (this.waitingFor !== waited) return
    this.waitingFor = undefined
    this.#onReady(this)
  }
}

/** For people: `allReduce(sum) float32[4096] by ring, #12`. */
export function nameOf({ operation, fingerprint }: Task): string {
  if (isCollective(operation)) return `${describeFingerprint(fingerprint)} #${operation.sequence}`
  const { name, peer, tag, dtype, count } = operation
  const direction = name === 'send' ? 'to' : 'from'
  const other = peer === ANY_SOURCE ? 'any rank' : `rank ${peer}`
  return `${name} ${dtype}[${count}] ${direction} ${other}, tag ${tag}`
}

/** Whether it waits on when ranks leave, to name all that are missing at its end. */
export function outlastsLeaving({ operation, group }: Task): boolean {
  return operation.name === 'monitoredBarrier' && operation.peer === 1 && group.rank === 0
}

/** The ranks of the world whose messages it waits for, or that have not taken its own. */
export function peersOf({ open, operation, group, waitingFor }: Task): number[] {
  const { name, peer } = operation
  const peers = new Set([...open].map(({ stream }) => stream.link.peer))
  for (const missing of waitingFor?.missing?.() ?? []) peers.add(missing)
  if (peers.size === 0 && (name === 'recv' || isNative(operation))) {
    const isAny = name !== 'recv' || peer === ANY_SOURCE
    for (const [rank, member] of group.ranks.entries()) {
      if (isAny ? rank !== group.rank : rank === peer) peers.add(member)
    }
  }
  return [...peers].sort((a, b) => a - b)
}

/** Whether it cannot end without the peer (world rank). */
export function needs({ open, waitingFor }: Task, peer: number): boolean {
  if (waitingFor?.missing?.().includes(peer) === true) return true
  return [...open].some(({ stream }) => stream.link.peer === peer)
}

/** What can be given back at the end: what a library still uses is its own for good. */
export function freeScratch({ state, operation, scratch }: Task): readonly number[] {
  return state === 'done' || !isNative(operation) ? scratch : []
}

/** For people: what a rank runs, and whom it waits for. */
export function describeWaiting(rank: number, running: Iterable<Task>): string {
  const tasks = Array.from(
    running,
    (task) => `${nameOf(task)} waits for rank ${peersOf(task).join(', ')}`,
  )
  return `rank ${rank}: ${tasks.join(', ')}`
}

/** The rank that all wait for, directly or not, is known only where it is waited for. */
export function nameAndWait(task: Task): string {
  const peers = peersOf(task)
  return `${nameOf(task)}${peers.length === 0 ? '' : ` (waiting for rank ${peers.join(', ')})`}`
}
