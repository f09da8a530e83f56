import type { WorkTiming } from './ticket.ts'

/**
 * An operation that is made once and run many times, as the persistent requests of MPI are: its
 * arguments are checked, its buffers placed and its algorithm chosen when it is made. A run takes the
 * next position of its group, as a call would, so all ranks start their collectives in the same order,
 * whether prepared or called. A prepared collective and a call of the same collective fit together.
 *
 * @example
 * const sum = group.allReduceInit(buffer, { op: 'avg' })
 * for (const batch of batches) {
 *   fill(buffer, batch)
 *   sum.start()
 *   sum.wait()
 * }
 * sum.free()
 */
export interface PersistentOperation {
  /**
   * Starts a run on what the buffers hold now.
   *
   * @throws ERR_TSR_ARGUMENT while a run is under way, and after `free`; ERR_TSR_GROUP_DESTROYED; the error
   *   of the previous run, if it was never awaited
   */
  start(): void
  /**
   * Blocks the calling thread until the run is done; returns at once if none is under way.
   *
   * @throws the error of the run; ERR_TSR_SYNC_UNSUPPORTED in the in-process world
   */
  wait(): void
  /** Resolves when the run is done, or at once if none is under way. Rejects with its error. */
  done(): Promise<void>
  /**
   * As `start` and `done`, for a program that has nothing else to do meanwhile: the calling thread takes
   * part itself if all ranks share memory and come within a moment, which saves handing over to the
   * thread of the engine, and waking up. Until then it blocks.
   *
   * @throws as `start`. Rejects with the error of the run
   */
  run(): Promise<void>
  /**
   * Whether `run` is faster than `start`, even beside a computation: the ranks share memory and there is no
   * spare core to move data.
   */
  readonly prefersRun: boolean
  /** Whether no run is under way. */
  isCompleted(): boolean
  /**
   * When the phases of the last completed run began; undefined before the first, and if it is not known.
   */
  readonly timing: WorkTiming | undefined
  /** Lets go of what it holds. @throws ERR_TSR_ARGUMENT while a run is under way */
  free(): void
}
