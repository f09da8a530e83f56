/**
 * Where metrics of a training run are written: a TensorBoard folder, a CSV or a JSONL file, or something
 * of the user's.
 *
 * The methods only buffer, so they may be called in a hot loop, in any order and without waiting. What
 * was buffered is written in the background, in the order of the calls. An error of the file system is
 * thrown by the next `flush` or `close`.
 */
export interface MetricLog {
  /**
   * A number, for example the loss.
   *
   * @param name - `loss`, or with a group `evaluate/loss`
   * @param value - may be NaN or infinite, which is how a run that diverges looks
   * @param step - the number of the step, from 0
   */
  scalar(name: string, value: number, step: number): void

  /** A text, for example what a language model writes. */
  text(name: string, text: string, step: number): void

  /** How values are distributed, for example those of a parameter. They are read before this returns. */
  histogram(name: string, values: ArrayLike<number>, step: number): void

  /** Resolves when everything logged so far has been handed to the system. */
  flush(): Promise<void>

  /** Writes what is left and closes the files. Nothing may be logged afterwards. */
  close(): Promise<void>
}
