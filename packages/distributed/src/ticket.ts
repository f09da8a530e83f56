import type { TsrError } from '@tsrun/core'
import type { Operation } from './operation.ts'

/** When the phases of an operation began, in milliseconds of core's `monotonicNow()`. */
export interface WorkTiming {
  /** The engine took it up. */
  readonly posted: number
  /** The peer was there: first byte moved. Before it the operation waited, after it it transferred. */
  readonly started: number
  readonly completed: number
}

/** An operation handed to an engine: what the caller sees of it. */
export interface Ticket {
  readonly isSettled: boolean
  /** Moves what can move now, where the caller's thread does that; returns whether it is settled. */
  poll(): boolean
  /** Moves what can move on the calling thread, for as long as the peers come within a moment. */
  linger(): void
  /** Why it failed; undefined while it runs and when it succeeded. */
  readonly error: TsrError | undefined
  readonly timing: WorkTiming | undefined
  /**
   * Calls back once when it is settled, never before this returns. `isAwaited`: the process must
   * not end before, and an engine on the caller's thread must go on until then.
   */
  onSettled(callback: () => void, isAwaited: boolean): void
  /** Blocks the calling thread until it is settled. @throws ERR_TSR_SYNC_UNSUPPORTED */
  block(operation: string): void
  abort(): void
  /**
   * Hands the operation to the engine once more, in the same memory, when it is settled.
   *
   * @param operation - the same one at another position
   */
  restart(operation: Operation): void
}
