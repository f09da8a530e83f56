import type { Span } from '@tsrun/distributed/record'
import { alignClocks, hostOf } from './clocks.ts'
import type { Window } from './division.ts'
import { indexSpans } from './span-file-reader.ts'
import type { TracedRun } from './traced-run.ts'

/** A step of a rank, on the common clock. */
export interface RecordedStep extends Window {
  readonly loss: number | undefined
}

/** The steps of a run's last attempt. */
export type RecordedSteps = ReturnType<typeof readSteps>

/** Finds the steps and spans of a run's last attempt, without keeping all spans in memory. */
export function readSteps({ runId, lastAttempt, files }: TracedRun) {
  const own = files.filter(({ header }) => header.restartCount === lastAttempt)
  const offsets = alignClocks(own)
  const read = [...new Set(own.map(({ header }) => header.rank))].map((rank) => {
    // A process that replaced a lost rank has written a separate file.
    const ofRank = own
      .filter(({ header }) => header.rank === rank)
      .sort((a, b) => a.header.time - b.header.time)
    const { header } = ofRank.at(-1)!
    const offset = offsets.get(hostOf(ofRank[0]!.header)) ?? 0
    const steps = new Map<number, RecordedStep>()
    let count = 0
    let [first, last] = [Infinity, -Infinity]
    const visit = ({ kind, step, start, end, loss }: Span): void => {
      count++
      if (['F', 'batch', 'input'].includes(kind)) first = Math.min(first, start + offset)
      if (kind !== 'gc') last = Math.max(last, end + offset)
      if (kind !== 'step' || step === undefined) return
      steps.set(step, { start: start + offset, end: end + offset, loss })
    }
    const indexes = ofRank.map((file) => indexSpans(file, visit))
    const whole = { start: first, end: last, loss: undefined }
    return {
      header,
      /** Number of spans. */
      count,
      steps,
      whole: new Map<number, RecordedStep>(first < last ? [[0, whole]] : []),
      /** Returns the spans that overlap an interval of the common clock, without steps, ordered by start. */
      spansBetween: (start: number, end: number): Span[] =>
        indexes
          .flatMap((between) => between(start - offset, end - offset))
          .filter(({ kind }) => kind !== 'step')
          .map((span) => ({ ...span, start: span.start + offset, end: span.end + offset }))
          .sort((a, b) => a.start - b.start),
    }
  })
  // If only rank 0 reports steps, use its steps for all ranks.
  const reported = read.find(({ steps }) => steps.size > 0)?.steps
  const ranks = read.map(({ header, count, steps, whole, spansBetween }) => {
    /** By step number. */
    const windows: ReadonlyMap<number, RecordedStep> = steps.size > 0 ? steps : (reported ?? whole)
    return { header, count, windows, spansBetween }
  })
  const [one, ...others] = ranks
  return {
    runId,
    attempts: new Set(files.map(({ header }) => header.restartCount)).size,
    restartCount: lastAttempt,
    ranks,
    /** Step numbers common to all ranks that report steps, in order. */
    numbers: [...(one?.windows.keys() ?? [])]
      .filter((number) => others.every(({ windows }) => windows.has(number)))
      .sort((a, b) => a - b),
    /** Whether the program reports steps. If not, the whole run counts as one step. */
    hasSteps: reported !== undefined,
    /** Mean number of spans in a step, over all ranks together. */
    spansPerStep: ranks.reduce(
      (sum, { windows, count }) => sum + count / Math.max(1, windows.size),
      0,
    ),
  }
}
