import { monotonicNow } from '@tsrun/core'
import type { SpanFacts, SpanRecorder } from './spans.ts'

/** The trace of this rank, for those who add to it. */
export interface CurrentTrace {
  /** For whatever has no recorder of its own. */
  readonly recorder: SpanRecorder
  /** A step has ended, with the number and the loss that its program reports; the next one begins. */
  endStep(step: number, loss?: number): void
}

let current: CurrentTrace | undefined

export function setCurrentTrace(trace: CurrentTrace | undefined): void {
  current = trace
}

/** The trace of this rank, if there is one. */
export function currentTrace(): CurrentTrace | undefined {
  return current
}

/** Awaits `run`, and puts that into the trace of this rank, if there is one. */
export async function traceWait<T>(
  kind: 'input' | 'checkpoint',
  facts: SpanFacts,
  run: () => PromiseLike<T> | T,
): Promise<T> {
  if (current === undefined) return await run()
  const start = monotonicNow()
  try {
    return await run()
  } finally {
    current.recorder.record(kind, start, monotonicNow(), facts)
  }
}
