import type { Span, SpanKind } from '@tsrun/distributed/record'

/** Tracks of a rank: those of its main thread, and those of its engine. */
const MOST = 100
const RANK = 2 * MOST
/** The place of the garbage collector's track, after those of the main thread. */
const COLLECTOR = MOST - 1

/** Kinds that run beside the thread, so that they may overlap each other. */
const asynchronous: ReadonlySet<SpanKind> = new Set<SpanKind>([
  'step',
  'input',
  'checkpoint',
  'wait',
])

/**
 * The tracks (threads of the trace) of one rank. Slices of one track are nested or one after the other:
 * what overlaps in another way gets a track beside it.
 */
export class Tracks {
  readonly #rank: number
  readonly #onNew: (tid: number, name: string, place: number) => void
  /** The ends of the asynchronous slices that are open on each track of the main thread, outermost first. */
  readonly #main: number[][] = []
  #hasCollector = false
  /** When each track of the engine is free. */
  readonly #engine: number[] = []

  /** @param onNew - gets each track, with its name and its place among all */
  constructor(rank: number, onNew: (tid: number, name: string, place: number) => void) {
    this.#rank = rank
    this.#onNew = onNew
    this.#open(0, `rank ${rank}`)
    this.#main.push([])
  }

  /** The track of a slice of the main thread; they come in the order of their starts. */
  ofMainThread({ kind, start, end }: Span): number {
    // V8 measures them itself, and a little more than what other slices are the rest of
    if (kind === 'gc') return this.#collector()
    // it does nothing else meanwhile, so that such slices are nested
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

  /** The track of an operation of the engine. */
  ofOperation(start: number, end: number): number {
    let track = this.#engine.findIndex((free) => free <= start)
    if (track < 0) track = Math.min(this.#engine.length, MOST - 1)
    if (track === this.#engine.length) {
      this.#open(MOST + track, `rank ${this.#rank} engine${track === 0 ? '' : ` (${track + 1})`}`)
    }
    this.#engine[track] = Math.max(end, this.#engine[track] ?? -Infinity)
    return this.#tid(MOST + track)
  }

  /** 0 is a thread of the system. */
  #tid(track: number): number {
    return this.#rank * RANK + track + 1
  }

  #open(track: number, name: string): void {
    this.#onNew(this.#tid(track), name, this.#tid(track))
  }
}
