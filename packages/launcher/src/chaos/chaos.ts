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
  readonly #seed: number
  readonly #faults: readonly PlannedFault[]
  readonly #announcer: Announcer
  readonly #events: EventLog | undefined

  constructor(plan: ChaosPlan, announcer: Announcer, events: EventLog | undefined) {
    this.#seed = plan.seed
    this.#faults = plan.faults.map((fault) => ({ fault, left: fault.times ?? Infinity }))
    this.#announcer = announcer
    this.#events = events
  }

  /** Begins with an attempt, whose ranks have just been started. @returns ends it */
  begin(attempt: Stricken): () => void {
    const timers: NodeJS.Timeout[] = []
    const after = (seconds: number, run: () => void): void => {
      timers.push(setTimeout(run, Math.min(1000 * seconds, 2 ** 31 - 1)))
    }
    for (const [i, planned] of this.#faults.entries()) {
      const { fault } = planned
      // the same on all hosts, however often a fault has come in the attempts before
      const random = seededRandom(hashOf(this.#seed, i, attempt.restartCount))
      const struck = { ...attempt, fault, random, after }
      if (fault.meanSeconds !== undefined) this.#repeat(planned, struck)
      else if (fault.attempt !== attempt.restartCount) continue
      else if (fault.seconds !== undefined) {
        after(fault.seconds, () => {
          this.#strike(struck, `${fault.seconds} s after the start`)
        })
      } else this.#strikeWhenDone(struck)
    }
    return () => {
      for (const timer of timers) clearTimeout(timer)
    }
  }

  #repeat(planned: PlannedFault, struck: Struck): void {
    if (planned.left <= 0) return
    struck.after(-struck.fault.meanSeconds! * Math.log(1 - struck.random()), () => {
      planned.left--
      this.#strike(struck, 'by chance')
      this.#repeat(planned, struck)
    })
  }

  /** After a step, or a number of operations. */
  #strikeWhenDone(struck: Struck): void {
    const rank = chooseRank(struck)
    const { step, operations } = struck.fault
    if (!struck.ranks.some((process) => process.rank === rank)) return
    const look = (): void => {
      const status = struck.status().find((one) => one.rank === rank)
      const done = operations === undefined ? status?.step : status?.ended
      if (done === undefined || done < (step ?? operations ?? 0)) {
        struck.after(LOOK / 1000, look)
        return
      }
      const when = operations === undefined ? `after step ${done}` : `after ${done} operations`
      this.#strike(struck, when, rank)
    }
    look()
  }

  #strike(struck: Struck, when: string, rank = chooseRank(struck)): void {
    const { fault, after } = struck
    const process = struck.ranks.find((one) => one.rank === rank)
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
    } else if (fault.kind === 'slow') slowDown(process, fault, after)
    else process.inject(fault)
  }
}

interface PlannedFault {
  readonly fault: Fault
  /** How often it comes at most from now on. */
  left: number
}

/** A fault in one attempt. */
interface Struck extends Stricken {
  readonly fault: Fault
  readonly random: () => number
  readonly after: (seconds: number, run: () => void) => void
}

/** Milliseconds from one stop of a slow process to the next. */
const TURN = 40

/** Lets a process run for a part of the time only. */
function slowDown(
  process: RankProcess,
  { share, forSeconds }: Fault,
  after: Struck['after'],
): void {
  const end = performance.now() + 1000 * forSeconds
  const stop = (): void => {
    if (performance.now() >= end || process.end !== undefined) return
    process.strike('SIGSTOP')
    after((TURN * (1 - share)) / 1000, () => {
      process.strike('SIGCONT')
      after((TURN * share) / 1000, stop)
    })
  }
  stop()
}

function chooseRank({ fault, random, worldSize }: Struck): number {
  return fault.rank ?? Math.floor(random() * worldSize)
}

/** A seed of several numbers (FNV-1a). */
function hashOf(...numbers: readonly number[]): number {
  return numbers.reduce((hash, number) => Math.imul(hash ^ number, 16777619), 2166136261)
}

function describe(fault: Fault): string {
  const { kind, signal, forSeconds, milliseconds, code, bySeconds, limit, mebibytes, share } = fault
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
    case 'address-space':
      return `can map ${mebibytes === 0 ? 'no memory' : `${mebibytes} MiB`} any more`
    case 'disconnect':
      return 'loses its TCP connections'
    case 'half-close':
      return 'can no longer send on its TCP connections'
    case 'delay':
      return `sends on its TCP connections ${milliseconds} ms late, for ${forSeconds} s`
    case 'drop':
      return 'sends on its TCP connections, and some bytes are left out'
    case 'corrupt':
      return 'sends on its TCP connections, and a byte is changed'
    case 'truncate':
      return 'loses its TCP connections in the middle of what it sends'
    case 'slow':
      return `runs for ${Math.round(100 * share)} % of the time, for ${forSeconds} s`
  }
}
