import { monotonicNow, type TsrError } from '@tsrun/core'
import { dtypes } from '../dtype.ts'
import type { EngineGroup } from './group.ts'
import {
  ANY_SOURCE,
  describeFingerprint,
  fingerprintOf,
  isCollective,
  isNative,
  type Fingerprint,
  type Operation,
} from './operation.ts'
import type { Stream } from './stream.ts'
import type { Transfer } from './transfer.ts'

/** What an operation waits for: a transfer, its turn, or others on their boards. */
export interface Waited {
  readonly done: boolean
  /** World ranks that it waits for, where no open transfer tells. */
  readonly missing?: () => readonly number[]
}

/** The body of an operation: yields a transfer to wait until it is done. */
export type Steps = Generator<Waited, void, void>

/** An operation under way: `next` goes on with it until it has to wait. */
export interface Resumable {
  next(): IteratorResult<Waited, void>
}

/** An operation that the engine runs. Times are `monotonicNow()`. */
export interface Task {
  readonly operation: Operation
  readonly group: EngineGroup
  readonly fingerprint: Fingerprint
  steps: Resumable | undefined
  readonly posted: number
  /** When the first message moved; 0 before. */
  started: number
  completed: number
  readonly deadline: number
  /** Whether it has asked the ranks it waits for what they run. */
  hasInquired: boolean
  state: 'running' | 'done' | 'failed'
  error: TsrError | undefined
  waitingFor: Waited | undefined
  /** Transfers that are not done, for cancellation. */
  readonly open: Set<Transfer>
  /** Streams of a collective, by group rank; they end with it. */
  readonly streams: (Stream | undefined)[]
  /** Blocks of engine memory to give back at the end. */
  readonly scratch: number[]
  readonly onSettled: (task: Task) => void
}

export function createTask(
  operation: Operation,
  group: EngineGroup,
  onSettled: (task: Task) => void,
): Task {
  const posted = monotonicNow()
  return {
    operation,
    group,
    fingerprint: fingerprintOf(operation, dtypes[operation.dtype].code),
    steps: undefined,
    posted,
    started: 0,
    completed: 0,
    deadline: posted + operation.timeout,
    hasInquired: false,
    state: 'running',
    error: undefined,
    waitingFor: undefined,
    open: new Set(),
    streams: [],
    scratch: [],
    onSettled,
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
