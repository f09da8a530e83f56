import type { Announcer } from '../logs/announcer.ts'

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
