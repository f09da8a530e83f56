import { statSync } from 'node:fs'
import { join } from 'node:path'
import { namesIn } from '@tsrun/core'
import { parseSpanFileName, type Span } from '@tsrun/distributed/record'
import type { Window } from '../trace/division.ts'
import { spanDecoder, SpanFileReader } from '../trace/span-file-reader.ts'
import { stepView } from './step-view.ts'

/** Maximum bytes read by one poll, over all files. */
const LOOK_BYTES = 32 * 2 ** 20
/**
 * Bytes to read at the end of a file that has grown by much more. Ranks write at different times, so the
 * ends must be long enough to have steps in common.
 */
const END_BYTES = 2 ** 19
/**
 * Minimum steps whose spans are kept, besides those of the last KEPT_TIME milliseconds. Ranks write every
 * 250 ms at different times, so their last steps may differ.
 */
const KEPT_STEPS = 4
const KEPT_TIME = 2000
/** Maximum spans kept for a rank. */
const KEPT_SPANS = 40_000

/**
 * Follows the traces that the ranks of this host write during an attempt, step by step.
 *
 * @param folder - the run's folder; see `spansFolder`
 * @returns a function that reads what was added. It returns the last step that all given ranks have
 *   completed; undefined if there is no new step
 */
export function followSteps(folder: string, attempt: number) {
  const files = new Map<number, SpanTail>()
  const seen = new Set<string>()
  let shown: number | undefined

  /** Opens the newest file of each rank. A rank that keeps only its newest spans starts new files. */
  const open = (ranks: readonly number[]) => {
    for (const name of namesIn(folder)) {
      if (seen.has(name)) continue
      const place = parseSpanFileName(name)
      if (place?.restartCount !== attempt || !ranks.includes(place.rank)) continue
      try {
        const tail = openSpanTail(join(folder, name))
        seen.add(name)
        const known = files.get(place.rank)
        // Another process may have replaced the rank.
        if (known === undefined || tail.begun > known.begun) files.set(place.rank, tail)
      } catch {
        // The rank has not written the header yet, or has removed the file.
      }
    }
  }

  return (ranks: readonly number[]) => {
    open(ranks)
    const opened = ranks.toSorted((a, b) => a - b).flatMap((rank) => files.get(rank) ?? [])
    let budget = LOOK_BYTES
    for (const file of opened) budget -= file.read(budget)
    if (opened.length < ranks.length || opened.length === 0) return undefined
    const step = [...opened[0]!.windows.keys()].findLast((each) =>
      opened.every(({ windows }) => windows.has(each)),
    )
    if (step === undefined || step === shown) return undefined
    shown = step
    return stepView(
      step,
      opened.map(({ rank, windows, spans }) => ({ rank, window: windows.get(step)!, spans })),
    )
  }
}

type SpanTail = ReturnType<typeof openSpanTail>

/** @throws Error if the file is no span file */
function openSpanTail(path: string) {
  const file = new SpanFileReader(path)
  const { header } = file
  const decode = spanDecoder(header)
  let at = file.begin
  /**
   * Every span that starts at or after this time has been read. After a skipped part of the file, the time
   * is Infinity until the next step ends.
   */
  let from = header.monotonic

  const forget = () => {
    const { windows } = tail
    const ends = Array.from(windows.values(), ({ end }) => end)
    const last = ends.reduce((most, end) => Math.max(most, end), -Infinity)
    for (const [step, { end }] of [...windows].slice(0, -KEPT_STEPS)) {
      if (end < last - KEPT_TIME) windows.delete(step)
    }
    const [oldest] = windows.values()
    const first = oldest?.start ?? -Infinity
    const spans = tail.spans.filter(({ end }) => end >= first)
    tail.spans = spans.slice(-KEPT_SPANS)
    if (tail.spans.length === spans.length) return
    // Do not show steps with missing spans.
    const complete = tail.spans[0]!.end
    for (const [step, { start }] of windows) if (start < complete) windows.delete(step)
  }

  const add = (added: readonly Span[]) => {
    for (const span of added) {
      const { kind, step, start, end } = span
      if (kind !== 'step' || step === undefined) tail.spans.push(span)
      // Earlier spans were skipped, or are in a file that was removed.
      else if (start >= from) tail.windows.set(step, span)
      else from = Math.min(from, end)
    }
    forget()
  }

  /** Reads up to a position. @param isSkipped - whether to skip the spans, which is much faster */
  const advance = (to: number, isSkipped: boolean) => {
    const added: Span[] = []
    for (const part of file.parts(END_BYTES, decode, at, to, isSkipped)) {
      at = part.to
      added.push(...part.spans)
    }
    return added
  }

  const tail = {
    rank: header.rank,
    /** The last completed steps, by number. */
    windows: new Map<number, Window>(),
    spans: [] as Span[],
    /** Creation time of the file on the monotonic clock. */
    begun: header.monotonic,
    /** Reads up to `most` appended bytes. @returns the number of bytes read */
    read(most: number) {
      const begin = at
      let added: readonly Span[] = []
      try {
        const { size } = statSync(path)
        if (size - at > 1.5 * END_BYTES) {
          advance(Math.min(size - END_BYTES, begin + most), true)
          tail.spans = []
          tail.windows.clear()
          from = Infinity
        }
        added = advance(Math.min(size, begin + most), false)
      } catch {
        // A newer file has replaced this file.
      }
      add(added)
      return at - begin
    },
  }
  return tail
}
