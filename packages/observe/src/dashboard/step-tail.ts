import { closeSync, fstatSync } from 'node:fs'
import { join } from 'node:path'
import { namesIn, openFile } from '@tsrun/core'
import { parseSpanFileName, type Span } from '@tsrun/distributed/record'
import type { Window } from '../trace/division.ts'
import { readAt, spanDecoder, SpanFileReader } from '../trace/span-file-reader.ts'
import { stepView } from './step-view.ts'

/** Maximum bytes read by one poll, over all files. */
const LOOK_BYTES = 32 * 2 ** 20
/**
 * Bytes to read at the end of a file that has grown by much more. Ranks write at different times, so the
 * ends must be long enough to have steps in common.
 */
const END_BYTES = 2 ** 19
/** Maximum bytes decoded together. */
const PART_BYTES = 2 ** 20
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
  const { header, begin } = new SpanFileReader(path)
  const decode = spanDecoder(header)
  let at = begin
  /** All spans since this time have been read. Infinity after a skipped part, until the next step ends. */
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

  /** Returns appended bytes, or marks a part as skipped because it is too old. */
  const readAdded = (most: number) => {
    let fd: number
    try {
      fd = openFile(path)
    } catch {
      // A newer file has replaced this file.
      return { bytes: Buffer.alloc(0), isPassedOver: false }
    }
    try {
      const added = Math.max(0, fstatSync(fd).size - at)
      const isPassedOver = added > 1.5 * END_BYTES
      const length = Math.min(most, isPassedOver ? Math.min(added - END_BYTES, PART_BYTES) : added)
      return { bytes: readAt(fd, at, length), isPassedOver }
    } finally {
      closeSync(fd)
    }
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
      let total = 0
      for (let isBehind = true; isBehind && total < most;) {
        const { bytes, isPassedOver } = readAdded(most - total)
        const added: Span[] = []
        const used = decode(bytes, isPassedOver ? undefined : added)
        at += used
        total += used
        isBehind = isPassedOver && used > 0
        if (isPassedOver) {
          tail.spans = []
          tail.windows.clear()
          from = Infinity
        } else add(added)
      }
      return total
    },
  }
  return tail
}
