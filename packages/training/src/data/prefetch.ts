import { traceWait } from '@tsrun/distributed/record'

/**
 * Requests up to `depth` items ahead of the one in use, and yields them in order. An error is thrown in
 * place of its item.
 *
 * @example
 * for await (const record of prefetch(jsonlRecords('train.jsonl'), 100)) ...
 */
export async function* prefetch<T>(items: AsyncIterable<T>, depth: number): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]()
  const pending: Promise<IteratorResult<T>>[] = []
  const ask = (): void => {
    const next = iterator.next()
    // The consumer gets the error when it awaits this item.
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
