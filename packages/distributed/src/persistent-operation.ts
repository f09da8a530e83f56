import type { WorkTiming } from './ticket.ts'

/**
 * An operation that is prepared once and run many times, like the persistent requests of MPI.
 * Preparing it checks the arguments, places the buffers and chooses the algorithm. Each run takes
 * the next position of its group, like a call. So all ranks must start prepared and normal
 * collectives in the same order. Some ranks may prepare a collective that others call.
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
   * Starts a run on the current contents of the buffers.
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
   * Like `start` and `done`, for a program that has nothing else to do meanwhile. If all ranks
   * share memory and arrive within a moment, the calling thread moves the data itself. That saves
   * the hand-over to the engine's thread and the wake-up, but it blocks until then.
   *
   * @throws as `start`. Rejects with the error of the run
   */
  run(): Promise<void>
  /**
   * Whether `run` is faster than `start`, even if the program could compute meanwhile: the ranks
   * share memory, and no spare core is available to move data.
   */
  readonly prefersRun: boolean
  /** Whether no run is under way. */
  isCompleted(): boolean
  /** When the phases of the last completed run began; undefined before the first run or if unknown. */
  readonly timing: WorkTiming | undefined
  /** Frees the buffers that it holds. @throws ERR_TSR_ARGUMENT while a run is under way */
  free(): void
}
