import { monotonicNow } from '@tsrun/core'
import type { SpanFacts, SpanRecorder } from './spans.ts'

/** The trace of this rank, for callers that add spans to it. */
export interface CurrentTrace {
  /** The recorder for callers that have no recorder of their own. */
  readonly recorder: SpanRecorder
  /**
   * Ends the current step and starts the next. The program reports the number and the loss of the
   * ended step.
   */
  endStep(step: number, loss?: number): void
}

let current: CurrentTrace | undefined

export function setCurrentTrace(trace: CurrentTrace | undefined): void {
  current = trace
}

/** The trace that this rank records; undefined if it records none. */
export function currentTrace(): CurrentTrace | undefined {
  return current
}

/** Awaits `run`, and records the wait in this rank's trace if there is one. */
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
