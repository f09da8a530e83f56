import type { WorkTiming } from './ticket.ts'

/**
 * An operation that is prepared once and run many times, like the persistent requests of MPI.
 * Preparing it checks the arguments, places the buffers and chooses the algorithm. Each run takes
 * the next position in its group, like a call. All ranks must therefore start prepared and normal
 * collectives in the same order. Some ranks may prepare a collective that other ranks call
 * directly.
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
   * @throws ERR_TSR_ARGUMENT while a run is under way, and after `free`; ERR_TSR_GROUP_DESTROYED;
   * the error of the previous run, if nobody has awaited that run
   */
  start(): void
  /**
   * Blocks the calling thread until the run is done; returns at once if none is under way.
   *
   * @throws the error of the run; ERR_TSR_SYNC_UNSUPPORTED in the in-process world
   */
  wait(): void
  /**
   * Resolves when the run is done, or at once if no run is under way. Rejects with the error of the
   * run.
   */
  done(): Promise<void>
  /**
   * Like `start` followed by `done`, for a program that has nothing to compute meanwhile. If all
   * ranks share memory and arrive almost together, the calling thread moves the data itself. It
   * then blocks until all ranks arrive, but saves the hand-over to the engine's thread and the
   * wake-up.
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
  /**
   * Frees the buffers that the operation holds in the arena.
   * @throws ERR_TSR_ARGUMENT while a run is under way
   */
  free(): void
}
