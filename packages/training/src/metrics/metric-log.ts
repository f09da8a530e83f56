/**
 * The destination for metrics of a training run: a TensorBoard folder, a CSV or JSONL file, or a
 * custom destination.
 *
 * The logging methods only append to a buffer, so call them in a hot loop without awaiting
 * anything. The buffer is written in the background, in the order of the calls. The next `flush` or
 * `close` throws any file system error.
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

  /**
   * Logs the distribution of values, for example of a parameter. The values are read before the
   * method returns.
   */
  histogram(name: string, values: ArrayLike<number>, step: number): void

  /** Resolves when everything logged so far was passed to the operating system. */
  flush(): Promise<void>

  /** Writes the buffer and closes the files. Later calls of the logging methods throw. */
  close(): Promise<void>
}
