import type { RankOutcome } from './outcome.ts'

const SHOWN_LINES = 20

export interface CrashDump {
  /** Where the error arose: file and line, the source, a mark; empty when Node printed none. */
  readonly frame: readonly string[]
  /** The last lines on stderr that are not part of what Node printed about its death. */
  readonly rest: readonly string[]
}

/**
 * Takes apart what a dying Node prints on stderr, so that the report shows each thing once.
 * The frame matters for syntax errors, whose stack does not name the file.
 */
export function readCrashDump({ error, stderrTail, heapExhausted }: RankOutcome): CrashDump {
  if (heapExhausted) return { frame: [], rest: last(beforeHeapDump(stderrTail)) }
  const text = error?.text ?? ''
  const top = text.split('\n', 1)[0] ?? ''
  const start = top === '' ? -1 : stderrTail.indexOf(top)
  if (start < 0) return { frame: [], rest: last(stderrTail) }
  const frameStart = findFrame(stderrTail, start)
  const frame = stderrTail.slice(frameStart, start)
  const version = stderrTail.findIndex((line, index) => index > start && /^Node\.js v\d/.test(line))
  const end = version < 0 ? start + text.split('\n').length : version + 1
  const rest = [...stderrTail.slice(0, frameStart), ...stderrTail.slice(end)]
  // A frame inside Node itself says nothing about the script.
  return { frame: frame[0]?.startsWith('node:') === true ? [] : frame, rest: last(rest) }
}

/** Index of the line `file:///…/script.mjs:12` a few lines above the error, or that of the error. */
function findFrame(lines: readonly string[], start: number): number {
  for (let index = start - 1; index >= Math.max(0, start - 8); index--) {
    if (/^(file:\/\/|node:|\/).*:\d+$/.test(lines[index]!)) return index
  }
  return start
}

function beforeHeapDump(lines: readonly string[]): readonly string[] {
  const start = lines.findIndex((line) => /^<--- Last few GCs --->|^FATAL ERROR: /.test(line))
  return start < 0 ? [] : lines.slice(0, start)
}

function last(lines: readonly string[]): string[] {
  const kept = [...lines]
  while (kept.at(-1) === '') kept.pop()
  return kept.slice(-SHOWN_LINES)
}
