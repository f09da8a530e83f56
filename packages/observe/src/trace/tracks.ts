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

/**
 * Assigns the spans of one rank to tracks (threads of the trace). Slices of one track are nested or
 * disjoint. A slice that would overlap partially gets an additional track.
 */
export class Tracks {
  readonly #rank: number
  readonly #onNew: (tid: number, name: string, place: number) => void
  /** By track of the main thread: the ends of its open asynchronous slices, outermost first. */
  readonly #main: number[][] = []
  #hasCollector = false
  /** By track of the engine: when the track becomes free. */
  readonly #engine: number[] = []

  /** @param onNew - called for each new track, with its name and its sort position */
  constructor(rank: number, onNew: (tid: number, name: string, place: number) => void) {
    this.#rank = rank
    this.#onNew = onNew
    this.#open(0, `rank ${rank}`)
    this.#main.push([])
  }

  /** The track of a slice of the main thread. Slices must come in the order of their starts. */
  ofMainThread({ kind, start, end }: Span): number {
    // V8 measures garbage collections, which may not nest exactly in other slices.
    if (kind === 'gc') return this.#collector()
    // Synchronous slices of one thread are nested.
    if (!asynchronous.has(kind)) return this.#tid(0)
    for (let track = 0; track < COLLECTOR; track++) {
      if (track === this.#main.length) {
        this.#main.push([])
        this.#open(track, `rank ${this.#rank} (${track + 1})`)
      }
      const open = this.#main[track]!
      while (open.length > 0 && open.at(-1)! <= start) open.pop()
      if (open.length > 0 && open.at(-1)! < end) continue
      open.push(end)
      return this.#tid(track)
    }
    return this.#tid(COLLECTOR - 1)
  }

  #collector(): number {
    if (!this.#hasCollector) this.#open(COLLECTOR, `rank ${this.#rank} garbage collection`)
    this.#hasCollector = true
    return this.#tid(COLLECTOR)
  }

  ofOperation(start: number, end: number): number {
    let track = this.#engine.findIndex((free) => free <= start)
    if (track < 0) track = Math.min(this.#engine.length, MOST - 1)
    if (track === this.#engine.length) {
      this.#open(MOST + track, `rank ${this.#rank} engine${track === 0 ? '' : ` (${track + 1})`}`)
    }
    this.#engine[track] = Math.max(end, this.#engine[track] ?? -Infinity)
    return this.#tid(MOST + track)
  }

  /** Thread ID 0 is reserved for the system. */
  #tid(track: number): number {
    return this.#rank * RANK + track + 1
  }

  #open(track: number, name: string): void {
    this.#onNew(this.#tid(track), name, this.#tid(track))
  }
}
