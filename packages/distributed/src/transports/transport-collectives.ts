import type { Channel, Layout, Resumable, Waited } from '../algorithms/channel.ts'
import type { Fingerprint, Operation } from '../operation.ts'

/** A process group as transports see it. */
export interface GroupFacts {
  readonly id: number
  /** Rank of this process in the group. */
  readonly rank: number
  /** World rank of each member. */
  readonly ranks: readonly number[]
  readonly layout: Layout
}

/** An operation that the engine runs, as transports see it. It is the channel of its messages, too. */
export interface RunningOperation extends Channel {
  readonly operation: Operation
  readonly group: GroupFacts
  readonly fingerprint: Fingerprint
  readonly state: 'running' | 'done' | 'failed'
  /** When it began to move data, by `monotonicNow()`; 0 before. */
  started: number
  /** Continues it soon, if this is what it waits for. */
  resume(waited: Waited): void
}

/** Collectives that run on something of the transport's own, instead of on messages. */
export interface TransportCollectives {
  /**
   * The operation with the algorithm of theirs that runs it; undefined where they cannot run it. The
   * answer is the same on all ranks of the group.
   */
  take(operation: Operation, group: GroupFacts): Operation | undefined
  /** The body of the operation. It takes its place in their order when it is first resumed. */
  run(running: RunningOperation): Resumable
  /** Polls pending transfers, and resumes the operations that wait for completed ones. */
  progress(): boolean
  removeGroup?(id: number): void
  /** The group refuses operations from now on. */
  onGroupFailed?(id: number): void
}
