/** A range of lines; `to` is exclusive. */
interface Place {
  readonly from: number
  readonly to: number
}

const FRAME = /^\s+at .*(:\d+\)?|\(<anonymous>\)|\(index \d+\)|<anonymous>)$/
const PYTHON = 'Traceback (most recent call last):'
/** The first line of an error: `TypeError: x is not a function`, `Uncaught MyError`. */
const HEADER = /^(Uncaught |\[?)[\w.$]*(Error|Exception|Warning)\b/
/** The location of an error that Node prints above the source line and the error. */
const SOURCE = /^(file:\/\/|node:|\/).*:\d+$/
/** Maximum lines of a message or a source excerpt above the first frame. */
const LONGEST_HEAD = 10

/** The first stack trace of Node or Python in `lines`; undefined if there is none. */
export function findTrace(lines: readonly string[]): Place | undefined {
  const mark = lines.findIndex((line) => FRAME.test(line) || line.startsWith(PYTHON))
  if (mark < 0) return undefined
  if (lines[mark]!.startsWith(PYTHON)) {
    const last = lines.findIndex((line, index) => index > mark && /^\S/.test(line))
    return last < 0 ? { from: mark, to: lines.length } : { from: mark, to: last + 1 }
  }
  let to = mark + 1
  while (to < lines.length && /^\s+\S|^[}\]]/.test(lines[to]!)) to++
  if (lines[to] === '' && /^Node\.js v\d/.test(lines[to + 1] ?? '')) to += 2
  return { from: findHead(lines, mark), to }
}

function findHead(lines: readonly string[], mark: number): number {
  const lowest = Math.max(0, mark - LONGEST_HEAD)
  const above = lines.slice(lowest, mark)
  const header = above.findLastIndex((line) => HEADER.test(line))
  const start = header < 0 ? Math.max(0, mark - 1) : lowest + header
  return findSource(lines, start, LONGEST_HEAD)
}

/**
 * Searches up to `most` lines above `start` for a location such as `file:///…/script.mjs:12`. Returns the
 * index of the last one, or `start` if there is none.
 */
export function findSource(lines: readonly string[], start: number, most: number): number {
  const lowest = Math.max(0, start - most)
  const index = lines.slice(lowest, start).findLastIndex((line) => SOURCE.test(line))
  return index < 0 ? start : lowest + index
}
