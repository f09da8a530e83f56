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

/**
 * A running operation of the engine, as transports see it. It is also the channel for its messages.
 */
export interface RunningOperation extends Channel {
  readonly operation: Operation
  readonly group: GroupFacts
  readonly fingerprint: Fingerprint
  readonly state: 'running' | 'done' | 'failed'
  /** When the operation moved its first data, by `monotonicNow()`; 0 before. */
  started: number
  /** Schedules the operation to resume, if it waits for this event. */
  resume(waited: Waited): void
}

/** Collectives that a transport runs itself, without the engine's messages. */
export interface TransportCollectives {
  /**
   * Returns the operation with an algorithm of the transport. Returns undefined if the transport
   * cannot run the operation. The result is the same on all ranks of the group.
   */
  take(operation: Operation, group: GroupFacts): Operation | undefined
  /**
   * Returns the body of the operation. The operation takes its position among the transport's
   * collectives when its body first runs.
   */
  run(running: RunningOperation): Resumable
  /** Polls pending transfers, and resumes the operations that wait for completed ones. */
  progress(): boolean
  removeGroup?(id: number): void
}
