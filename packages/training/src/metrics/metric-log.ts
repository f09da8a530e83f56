/**
 * The destination for metrics of a training run: a TensorBoard folder, a CSV or JSONL file, or a custom
 * one.
 *
 * The methods only buffer, so they may be called in a hot loop, in any order and without waiting. The
 * buffer is written in the background, in the order of the calls. The next `flush` or `close` throws an
 * error of the file system.
 */
export interface MetricLog {
  /**
   * Logs a number, for example the loss.
   *
   * @param name - `loss`, or with a group `evaluate/loss`
   * @param value - may be NaN or infinite, as in a run that diverges
   * @param step - the number of the step, from 0
   */
  scalar(name: string, value: number, step: number): void

  /** Logs a text, for example the output of a language model. */
  text(name: string, text: string, step: number): void

  /** Logs the distribution of values, for example of a parameter. They are read before this returns. */
  histogram(name: string, values: ArrayLike<number>, step: number): void

  /** Resolves when everything logged so far was passed to the operating system. */
  flush(): Promise<void>

  /** Writes the buffer and closes the files. Nothing may be logged afterwards. */
  close(): Promise<void>
}
