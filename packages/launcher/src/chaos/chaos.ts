import { seededRandom } from '@tsrun/core'
import type { RankStatus } from '@tsrun/telemetry'
import type { EventLog } from '../logs/event-log.ts'
import type { Announcer } from '../logs/console.ts'
import type { RankProcess } from '../processes/rank-process.ts'
import type { ChaosPlan, Fault } from './plan.ts'

/** Milliseconds between two looks at the steps of the ranks. */
const LOOK = 10

interface Stricken {
  readonly worldSize: number
  /** From 0. */
  readonly restartCount: number
  /** Those of this host. */
  readonly ranks: readonly RankProcess[]
  readonly status: () => readonly RankStatus[]
}

/**
 * Brings the faults of a plan over the ranks of this host: from outside by signals, and from inside by
 * what is evaluated in the rank (`rank/faults.ts`). On several hosts, each launcher has the same plan, and
 * brings the faults of its own ranks.
 */
export class Chaos {
  readonly #faults: readonly PlannedFault[]
  readonly #announcer: Announcer
  readonly #events: EventLog | undefined

  constructor(plan: ChaosPlan, announcer: Announcer, events: EventLog | undefined) {
    this.#faults = plan.faults.map((fault, i) => ({
      fault,
      random: seededRandom(plan.seed + 7919 * i),
      left: fault.times ?? Infinity,
    }))
    this.#announcer = announcer
    this.#events = events
  }

  /** Begins with an attempt, whose ranks have just been started. @returns ends it */
  begin(attempt: Stricken): () => void {
    const timers: NodeJS.Timeout[] = []
    const after = (seconds: number, run: () => void): void => {
      timers.push(setTimeout(run, Math.min(1000 * seconds, 2 ** 31 - 1)))
    }
    for (const planned of this.#faults) {
      const { fault } = planned
      if (fault.meanSeconds !== undefined) this.#repeat(planned, attempt, after)
      else if (fault.attempt !== attempt.restartCount) continue
      else if (fault.seconds !== undefined) {
        after(fault.seconds, () => {
          this.#strike(planned, attempt, `${fault.seconds} s after the start`, after)
        })
      } else this.#strikeAtStep(planned, attempt, fault.step!, after)
    }
    return () => {
      for (const timer of timers) clearTimeout(timer)
    }
  }

  #repeat(planned: PlannedFault, attempt: Stricken, after: After): void {
    const { random } = planned
    if (planned.left <= 0) return
    after(-planned.fault.meanSeconds! * Math.log(1 - random()), () => {
      planned.left--
      this.#strike(planned, attempt, 'by chance', after)
      this.#repeat(planned, attempt, after)
    })
  }

  #strikeAtStep(planned: PlannedFault, attempt: Stricken, step: number, after: After): void {
    const rank = chooseRank(planned, attempt)
    if (!attempt.ranks.some((process) => process.rank === rank)) return
    const look = (): void => {
      const status = attempt.status().find((one) => one.rank === rank)
      if ((status?.step ?? -1) < step) after(LOOK / 1000, look)
      else this.#strike(planned, attempt, `after step ${status!.step}`, after, rank)
    }
    look()
  }

  #strike(
    planned: PlannedFault,
    attempt: Stricken,
    when: string,
    after: After,
    rank = chooseRank(planned, attempt),
  ): void {
    const { fault } = planned
    const process = attempt.ranks.find((one) => one.rank === rank)
    if (process === undefined || process.end !== undefined) return
    const what = describe(fault)
    this.#announcer.say('chaos', `chaos: rank ${rank} ${what}, ${when}`, { rank, kind: fault.kind })
    this.#events?.record('fault-injected', { rank, kind: fault.kind, what, when })
    if (fault.kind === 'kill') process.strike(fault.signal)
    else if (fault.kind === 'stop') {
      process.strike('SIGSTOP')
      after(fault.forSeconds, () => {
        process.strike('SIGCONT')
      })
    } else process.suffer(fault)
  }
}

interface PlannedFault {
  readonly fault: Fault
  readonly random: () => number
  left: number
}

type After = (seconds: number, run: () => void) => void

function chooseRank({ fault, random }: PlannedFault, { worldSize }: Stricken): number {
  return fault.rank ?? Math.floor(random() * worldSize)
}

function describe({ kind, signal, forSeconds, code, bySeconds, limit }: Fault): string {
  switch (kind) {
    case 'kill':
      return `gets ${signal}`
    case 'stop':
      return `is stopped for ${forSeconds} s`
    case 'exit':
      return `exits with code ${code}`
    case 'throw':
      return 'throws an error'
    case 'reject':
      return 'has a rejected promise'
    case 'busy':
      return `is busy for ${forSeconds} s`
    case 'memory':
      return 'uses up its memory'
    case 'clock':
      return `has a clock that jumps by ${bySeconds} s`
    case 'descriptors':
      return `can open ${limit === 0 ? 'no file' : `${limit} files`} any more`
    case 'disk':
      return 'has a full disk'
    case 'disconnect':
      return 'loses its TCP connections'
  }
}
