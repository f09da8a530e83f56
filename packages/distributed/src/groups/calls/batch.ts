import { setMaxListeners } from 'node:events'
import type { CallOptions } from '../../process-group.ts'
import type { FollowedWork } from './stepped-work.ts'
import type { Call } from './operations.ts'

/** Node 20 holds the sources of `AbortSignal.any` weakly: a caller's time-out would be collected. */
const sources = new WeakMap<AbortSignal, readonly AbortSignal[]>()

/**
 * Starts the messages of a batch in order. When one cannot be started, for lack of room, those
 * before it are given up, so that the peers learn of it.
 */
export function startBatch(
  calls: readonly Call[],
  options: CallOptions | undefined,
  start: (call: Call) => FollowedWork<unknown>,
): FollowedWork<unknown>[] {
  const giveUp = new AbortController()
  const signals = [giveUp.signal, ...(options?.signal === undefined ? [] : [options.signal])]
  const signal = AbortSignal.any(signals)
  sources.set(signal, signals)
  // one listener for each message
  setMaxListeners(0, signal)
  const works: FollowedWork<unknown>[] = []
  try {
    for (const call of calls) works.push(start({ ...call, options: { ...options, signal } }))
  } catch (error) {
    giveUp.abort()
    for (const work of works) work.then(undefined, () => undefined)
    throw error
  }
  return works
}
