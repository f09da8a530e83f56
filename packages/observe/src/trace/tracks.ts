import type { Span, SpanKind } from '@tsrun/distributed/record'

/** Maximum tracks of a rank's main thread, and of its engine. */
const MOST = 100
const RANK = 2 * MOST
/** Index of the garbage collector's track, after the tracks of the main thread. */
const COLLECTOR = MOST - 1

/** Asynchronous kinds of the main thread, whose spans may overlap. */
const asynchronous: ReadonlySet<SpanKind> = new Set<SpanKind>([
  'step',
  'input',
  'checkpoint',
  'wait',
])

export type Tracks = ReturnType<typeof assignTracks>

/**
 * Assigns the spans of one rank to tracks (threads of the trace). Slices of one track are nested or
 * disjoint. A slice that would overlap partially gets an additional track.
 *
 * @param onNew - called for each new track, with its name and its sort position
 */
export function assignTracks(
  rank: number,
  onNew: (tid: number, name: string, place: number) => void,
) {
  /** By track of the main thread: the ends of its open asynchronous slices, outermost first. */
  const main: number[][] = [[]]
  let hasCollector = false
  /** By track of the engine: when the track becomes free. */
  const engine: number[] = []
  /** Thread ID 0 is reserved for the system. */
  const tidOf = (track: number): number => rank * RANK + track + 1
  const open = (track: number, name = ''): void => {
    onNew(tidOf(track), `rank ${rank}${name}`, tidOf(track))
  }
  open(0)
  return {
    /** The track of a slice of the main thread. Slices must come in the order of their starts. */
    ofMainThread({ kind, start, end }: Span): number {
      // V8 measures garbage collections, which may not nest exactly in other slices.
      if (kind === 'gc') {
        if (!hasCollector) open(COLLECTOR, ' garbage collection')
        hasCollector = true
        return tidOf(COLLECTOR)
      }
      // Synchronous slices of one thread are nested.
      if (!asynchronous.has(kind)) return tidOf(0)
      for (let track = 0; track < COLLECTOR; track++) {
        if (track === main.length) {
          main.push([])
          open(track, ` (${track + 1})`)
        }
        const slices = main[track]!
        while (slices.length > 0 && slices.at(-1)! <= start) slices.pop()
        if (slices.length > 0 && slices.at(-1)! < end) continue
        slices.push(end)
        return tidOf(track)
      }
      return tidOf(COLLECTOR - 1)
    },

    ofOperation(start: number, end: number): number {
      let track = engine.findIndex((free) => free <= start)
      if (track < 0) track = Math.min(engine.length, MOST - 1)
      if (track === engine.length) {
        open(MOST + track, ` engine${track === 0 ? '' : ` (${track + 1})`}`)
      }
      engine[track] = Math.max(end, engine[track] ?? -Infinity)
      return tidOf(MOST + track)
    },
  }
}
