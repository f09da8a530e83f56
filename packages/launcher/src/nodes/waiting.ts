import type { Announcer } from '../logs/console.ts'

/** Milliseconds of waiting at the first announcements; after these, one announcement every LATER. */
const FIRST = [2000, 5000, 10_000, 20_000] as const
const LATER = 30_000

/** Announces periodically which nodes this one is waiting for, until `end`. */
export class WaitAnnouncer {
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

  end(): void {
    clearTimeout(this.#timer)
  }

  #schedule(turn: number): void {
    const pause = FIRST[turn] === undefined ? LATER : FIRST[turn] - (FIRST[turn - 1] ?? 0)
    this.#timer = setTimeout(() => {
      const { whom } = this
      const seconds = Math.round((performance.now() - this.#started) / 1000)
      this.#announcer.say('rendezvous', `waiting for ${whom}; ${seconds} s`, { whom, seconds })
      this.#schedule(turn + 1)
    }, pause)
  }
}

/** `node 1`, `nodes 1, 3`. */
export function nameNodes(nodes: readonly number[]): string {
  return `${nodes.length === 1 ? 'node' : 'nodes'} ${nodes.join(', ')}`
}

/** Milliseconds between heartbeats. */
export const HEARTBEAT = 1000
/** Missed heartbeats after which silence is announced. */
const NOTABLE = 5

export interface SilenceEvents {
  readonly onSilent: (seconds: number) => void
  readonly onBack: (seconds: number) => void
  /** Called once, when nothing has arrived within the limit. */
  readonly onLost: () => void
}

/**
 * Counts missed heartbeats instead of reading the clock. A launcher that was suspended for an hour
 * (Ctrl-Z) then finds the heartbeats of the others in its socket when it resumes.
 */
export class HeartbeatMonitor {
  readonly #limit: number
  readonly #events: SilenceEvents
  #missed = 0

  /** @param limit - milliseconds */
  constructor(limit: number, events: SilenceEvents) {
    this.#limit = Math.max(1, Math.ceil(limit / HEARTBEAT))
    this.#events = events
  }

  heard(): void {
    if (this.#missed > NOTABLE) this.#events.onBack((this.#missed * HEARTBEAT) / 1000)
    this.#missed = 0
  }

  /** Must be called every HEARTBEAT milliseconds. */
  tick(): void {
    this.#missed++
    const isLost = this.#missed === this.#limit + 1
    if (isLost) this.#events.onLost()
    else if (this.#missed === NOTABLE + 1 && this.#missed <= this.#limit) {
      this.#events.onSilent((NOTABLE * HEARTBEAT) / 1000)
    }
  }
}
