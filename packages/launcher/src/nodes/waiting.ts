import type { Announcer } from '../logs/console.ts'

/** Milliseconds after which the wait is mentioned; then every LATER. */
const FIRST = [2000, 5000, 10_000, 20_000] as const
const LATER = 30_000

/** Says now and then for whom a node waits, until `end`. */
export class Waiting {
  /** For example `nodes 1, 3`. */
  whom: string
  readonly #announcer: Announcer
  readonly #started = performance.now()
  #timer: NodeJS.Timeout | undefined

  constructor(announcer: Announcer, whom: string) {
    this.#announcer = announcer
    this.whom = whom
    this.#schedule(0)
  }

  get seconds(): number {
    return Math.round((performance.now() - this.#started) / 1000)
  }

  end(): void {
    clearTimeout(this.#timer)
  }

  #schedule(turn: number): void {
    const pause = FIRST[turn] === undefined ? LATER : FIRST[turn] - (FIRST[turn - 1] ?? 0)
    this.#timer = setTimeout(() => {
      const { whom, seconds } = this
      this.#announcer.say('rendezvous', `waiting for ${whom}; ${seconds} s`, { whom, seconds })
      this.#schedule(turn + 1)
    }, pause)
  }
}

/** `node 1`, `nodes 1, 3`. */
export function nameNodes(nodes: readonly number[]): string {
  return `${nodes.length === 1 ? 'node' : 'nodes'} ${nodes.join(', ')}`
}

/** Milliseconds between two signs of life. */
export const BEAT = 1000
/** Silence of so many beats is mentioned. */
const NOTABLE = 5

export interface SilenceEvents {
  readonly onSilent: (seconds: number) => void
  readonly onBack: (seconds: number) => void
  /** Once: nothing was heard for the whole limit. */
  readonly onLost: () => void
}

/**
 * Counts the beats that were missed. Counting, not reading the clock: a launcher that was stopped
 * (Ctrl-Z) for an hour finds the others' signs of life in its socket when it goes on.
 */
export class Silence {
  readonly #limit: number
  readonly #events: SilenceEvents
  #missed = 0

  /** @param limit - milliseconds */
  constructor(limit: number, events: SilenceEvents) {
    this.#limit = Math.max(1, Math.ceil(limit / BEAT))
    this.#events = events
  }

  heard(): void {
    if (this.#missed > NOTABLE) this.#events.onBack((this.#missed * BEAT) / 1000)
    this.#missed = 0
  }

  /** To be called every BEAT milliseconds. */
  tick(): void {
    this.#missed++
    const isLost = this.#missed === this.#limit + 1
    if (isLost) this.#events.onLost()
    else if (this.#missed === NOTABLE + 1 && this.#missed <= this.#limit) {
      this.#events.onSilent((NOTABLE * BEAT) / 1000)
    }
  }
}
