import { currentTrace, traceWait } from '@tsrun/telemetry'

/** Puts the time for which a loop waits for each value into the trace of the job, if there is one. */
export function traceInput<T>(
  values: AsyncIterable<T> | Iterable<T>,
): AsyncIterable<T> | Iterable<T> {
  return currentTrace() === undefined ? values : traced(values)
}

async function* traced<T>(values: AsyncIterable<T> | Iterable<T>): AsyncGenerator<T> {
  const iterator =
    Symbol.asyncIterator in values ? values[Symbol.asyncIterator]() : values[Symbol.iterator]()
  let isDone = false
  try {
    for (;;) {
      const next = await traceWait('input', {}, () => iterator.next())
      isDone = next.done === true
      if (isDone) return
      yield next.value as T
    }
  } finally {
    if (!isDone) await iterator.return?.()
  }
}
