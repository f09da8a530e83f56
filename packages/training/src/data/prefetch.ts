import { traceWait } from '@tsrun/distributed/record'

/**
 * Requests up to `depth` items ahead of the current one, and yields them in order. If the request
 * of an item fails, the error is thrown in its place.
 *
 * @example
 * for await (const record of prefetch(jsonlRecords('train.jsonl'), 100)) ...
 */
export async function* prefetch<T>(items: AsyncIterable<T>, depth: number): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]()
  const pending: Promise<IteratorResult<T>>[] = []
  const ask = () => {
    const next = iterator.next()
    // Avoid an unhandled rejection: the consumer gets the error when it awaits this item.
    next.catch(() => undefined)
    pending.push(next)
  }
  try {
    for (let i = 0; i <= depth; i++) ask()
    for (;;) {
      const next = await traceWait('input', {}, () => pending.shift()!)
      if (next.done === true) return
      ask()
      yield next.value
    }
  } finally {
    await Promise.allSettled(pending)
    await iterator.return?.()
  }
}
