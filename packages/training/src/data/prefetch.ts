import { traceWait } from '@tsrun/distributed/record'

/**
 * Asks for the next items while the last one is used: up to `depth` of them are read ahead, in their
 * order. An error is thrown where its item would come.
 *
 * @example
 * for await (const record of prefetch(jsonlRecords('train.jsonl'), 100)) ...
 */
export async function* prefetch<T>(items: AsyncIterable<T>, depth: number): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]()
  const pending: Promise<IteratorResult<T>>[] = []
  const ask = (): void => {
    const next = iterator.next()
    // it is thrown when its turn comes
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
