import { join } from 'node:path'
import { LineSplitter, type Line, type StreamName } from './lines.ts'
import { streamNames } from './log-files.ts'
import { attemptsIn, RankReader, ranksIn, type LogPiece } from './log-reader.ts'

/** An output line of a rank. */
interface RecordedLine {
  readonly rank: number
  readonly stream: StreamName
  readonly text: string
}

/**
 * Reads the last lines of the last attempt of a run, in order of time.
 *
 * @param runs - its folders, DIR/RUN-ID, of all hosts
 * @returns the lines of all ranks, and the number of lines read but omitted
 */
export function readLastLines(runs: readonly string[], most: number) {
  const attempt = Math.max(-1, ...runs.flatMap((run) => attemptsIn(run)))
  const ranks = runs.flatMap((run) => {
    const path = join(run, `attempt_${attempt}`)
    return ranksIn(path).map((rank) => linesOf(path, rank, most))
  })
  const all = ranks.flatMap(({ lines }) => lines).sort((a, b) => a.time - b.time)
  const kept = all.slice(-most)
  const dropped = ranks.reduce((sum, rank) => sum + rank.dropped, all.length - kept.length)
  return {
    lines: kept.map(({ rank, stream, text }): RecordedLine => ({ rank, stream, text })),
    dropped,
  }
}

/** Maximum characters of a line, as on the page of a running job. */
const LINE_LENGTH = 2000

/** Copies the start of a long text, because a substring would keep the whole text in memory. */
function shortened(text: string): string {
  if (text.length <= LINE_LENGTH) return text
  return Buffer.from(`${text.slice(0, LINE_LENGTH)} …`).toString()
}

function linesOf(path: string, rank: number, most: number) {
  const reader = new RankReader(join(path, String(rank)), rank, streamNames, most)
  const splitters = { stdout: new LineSplitter(), stderr: new LineSplitter() }
  const lines: (RecordedLine & { readonly time: number })[] = []
  let [last, dropped] = [0, 0]
  const add = (stream: StreamName, found: readonly Line[]): void => {
    for (const { text } of found) lines.push({ rank, stream, text: shortened(text), time: last })
    // Bound the memory.
    if (lines.length > 2 * most) dropped += lines.splice(0, lines.length - most).length
  }
  const take = ({ time, stream, bytes }: LogPiece): void => {
    last = Math.max(last, time)
    add(stream, splitters[stream].push(bytes))
  }
  try {
    while (reader.peek() !== undefined) take(reader.next())
    for (const piece of reader.rest()) take(piece)
    for (const stream of streamNames) add(stream, splitters[stream].flush())
  } finally {
    reader.close()
  }
  return { lines, dropped }
}
