import { hash, randomBytes } from 'node:crypto'
import { closeSync, renameSync, rmSync } from 'node:fs'
import { checkReplaceable, openOwnFile, writeWhole } from '@tsrun/core'
import { actionKinds, isOperationKind, type Span, type SpanKind } from '@tsrun/distributed/record'
import { alignClocks, hostOf, operationKey } from './clocks.ts'
import type { SpanFileReader } from './span-file-reader.ts'
import { findTracedRun } from './traced-run.ts'

/** Bytes of spans that are sorted at once: tens of thousands of spans. */
const SORTED_BYTES = 2 ** 21

/** Shortest slice in microseconds. Perfetto attaches no arrows to slices of zero length. */
const SHORTEST = 0.001

/**
 * Writes the spans of a run in Chrome's Trace Event Format (JSON) for Perfetto and chrome://tracing.
 * Each host is a process and each rank has threads; arrows lead from sends to receives. Time 0 is when
 * the first rank opened its file. Replaces the file at its end.
 *
 * @returns the number of spans
 * @throws Error if the path exists and is not a regular file, and the errors of the file system
 */
export function writeChromeTrace(files: readonly SpanFileReader[], path: string): number {
  checkReplaceable(path)
  const unfinished = `${path}.${randomBytes(6).toString('hex')}`
  try {
    const spans = writeEvents(files, unfinished)
    renameSync(unfinished, path)
    return spans
  } catch (error) {
    rmSync(unfinished, { force: true })
    throw error
  }
}

function writeEvents(files: readonly SpanFileReader[], path: string) {
  const offsets = alignClocks(files)
  const offsetOf = (file: SpanFileReader) => offsets.get(hostOf(file.header)) ?? 0
  const zero = Math.min(...files.map((file) => file.header.monotonic + offsetOf(file)))
  const output = openEventFile(path)
  try {
    /** The process of each host. */
    const pids = new Map<string, number>()
    for (const { header } of files) {
      const key = hostOf(header)
      if (pids.has(key)) continue
      const pid = pids.size + 1
      pids.set(key, pid)
      output.name('process', pid, 0, `${header.host} (host ${header.node})`, header.node)
    }
    let count = 0
    // Attempts share the same tracks.
    const tracks = new Map<string, Tracks>()
    for (const file of files) {
      const host = hostOf(file.header)
      const pid = pids.get(host)!
      const offset = offsetOf(file) - zero
      const { rank, restartCount } = file.header
      const key = `${host} ${rank}`
      let own = tracks.get(key)
      if (own === undefined) {
        own = assignTracks(rank, (tid, name) => {
          output.name('thread', pid, tid, name, tid)
        })
        tracks.set(key, own)
      }
      for (const { spans } of file.parts(SORTED_BYTES)) {
        const sorted = spans.toSorted((a, b) => a.start - b.start || b.end - a.end)
        for (const span of sorted) writeSpan(output, span, { pid, offset, restartCount }, own)
        count += spans.length
      }
    }
    return count
  } finally {
    output.close()
  }
}

/** The contents of a trace for Perfetto. */
export interface MergedTrace {
  readonly spans: number
  readonly ranks: ReadonlySet<number>
}

/**
 * Merges the span files of a run into a file for Perfetto.
 *
 * @returns undefined if there are no span files
 * @throws the errors of the file system
 */
export function mergeTrace(
  directories: readonly string[],
  runId: string,
  file: string,
): MergedTrace | undefined {
  const run = findTracedRun(directories, runId)
  if (run === undefined) return undefined
  const ranks = new Set(run.files.map(({ header }) => header.rank))
  return { spans: writeChromeTrace(run.files, file), ranks }
}

function writeSpan(
  output: EventFile,
  span: Span,
  place: { readonly pid: number; readonly offset: number; readonly restartCount: number },
  tracks: Tracks,
) {
  const { pid, offset, restartCount } = place
  const { kind, start, end, name: label, ...facts } = span
  const key = kind === 'send' || kind === 'recv' ? operationKey(span, restartCount) : undefined
  // A collective or receive is idle until its peers arrive. A send does not wait.
  const waits = kind === 'recv' || kind === 'collective'
  const begun = waits ? Math.min(start + Math.max(0, span.waited ?? 0), end) : start
  const ts = 1000 * (begun + offset)
  const dur = Math.max(SHORTEST, 1000 * (end - begun))
  const tid = isOperationKind(kind) ? tracks.ofOperation(begun, end) : tracks.ofMainThread(span)
  output.write({
    name: nameOf(span),
    cat: kind,
    ph: 'X',
    pid,
    tid,
    ts: rounded(ts),
    dur: rounded(dur),
    args: { ...facts, label },
  })
  if (key !== undefined) {
    // Both ends of an arrow have the same unique identifier. Perfetto requires a number.
    const id = hash('sha256', key, 'buffer').readUIntBE(0, 6)
    const common = { name: 'message', cat: 'message', id, pid, tid }
    output.write(
      kind === 'send'
        ? { ...common, ph: 's', ts: rounded(ts) }
        : { ...common, ph: 'f', bp: 'e', ts: rounded(ts + Math.max(0, dur - SHORTEST)) },
    )
  }
}

function nameOf({ kind, name, microbatch, step }: Span) {
  if (actionKinds.has(kind)) return `${kind}${microbatch ?? (name === undefined ? '' : ` ${name}`)}`
  if (kind === 'step') return `step ${step ?? ''}`
  if (isOperationKind(kind)) return name ?? kind
  return name === undefined ? kind : `${kind}: ${name}`
}

type EventFile = ReturnType<typeof openEventFile>

/** A file of events, written in parts. */
function openEventFile(path: string) {
  const fd = openOwnFile(path)
  let text = '{"displayTimeUnit":"ms","traceEvents":[\n'
  let separator = ''
  const flush = () => {
    writeWhole(fd, Buffer.from(text))
    text = ''
  }
  const write = (event: object) => {
    text += separator + JSON.stringify(event)
    separator = ',\n'
    if (text.length > 1 << 18) flush()
  }
  return {
    write,
    name(what: 'process' | 'thread', pid: number, tid: number, name: string, place: number) {
      const common = { ph: 'M', pid, tid }
      write({ ...common, name: `${what}_name`, args: { name } })
      write({ ...common, name: `${what}_sort_index`, args: { sort_index: place } })
    },
    close() {
      text += '\n]}\n'
      flush()
      closeSync(fd)
    },
  }
}

function rounded(microseconds: number) {
  return Math.round(1000 * microseconds) / 1000
}

/** Maximum tracks of a rank's main thread, and of its engine. */
const MOST = 100
const RANK = 2 * MOST
/** Index of the garbage collector's track, after the tracks of the main thread. */
const COLLECTOR = MOST - 1

/** The kinds of asynchronous spans of the main thread. They may overlap. */
const asynchronous: ReadonlySet<SpanKind> = new Set<SpanKind>([
  'step',
  'input',
  'checkpoint',
  'wait',
])

type Tracks = ReturnType<typeof assignTracks>

/** Assigns the spans of a rank to tracks (threads of the trace), in which slices are nested or disjoint. */
function assignTracks(rank: number, onNew: (tid: number, name: string) => void) {
  /** For each track of the main thread: the ends of its open asynchronous slices, outermost first. */
  const main: number[][] = []
  /** For each track of the engine: the time at which the track becomes free. */
  const engine: number[] = []
  const known = new Set<number>()
  /** @param number - the index of the track among tracks of the same kind */
  const trackOf = (track: number, kind = '', number = 0) => {
    // Thread ID 0 is reserved for the system.
    const tid = rank * RANK + track + 1
    if (known.size < known.add(tid).size) {
      onNew(tid, `rank ${rank}${kind}${number === 0 ? '' : ` (${number + 1})`}`)
    }
    return tid
  }
  trackOf(0)
  return {
    /** The track of a slice of the main thread. Slices must come in the order of their starts. */
    ofMainThread({ kind, start, end }: Span) {
      // V8 measures garbage collections, which may not nest exactly in other slices.
      if (kind === 'gc') return trackOf(COLLECTOR, ' garbage collection')
      // Synchronous slices of one thread are nested.
      if (!asynchronous.has(kind)) return trackOf(0)
      for (let track = 0; track < COLLECTOR; track++) {
        const slices = (main[track] ??= [])
        while (slices.length > 0 && slices.at(-1)! <= start) slices.pop()
        if (slices.length > 0 && slices.at(-1)! < end) continue
        slices.push(end)
        return trackOf(track, '', track)
      }
      return trackOf(COLLECTOR - 1)
    },

    ofOperation(start: number, end: number) {
      let track = engine.findIndex((free) => free <= start)
      if (track < 0) track = Math.min(engine.length, MOST - 1)
      engine[track] = Math.max(end, engine[track] ?? -Infinity)
      return trackOf(MOST + track, ' engine', track)
    },
  }
}
