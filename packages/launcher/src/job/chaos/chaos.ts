import { seededRandom } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { EventLog } from '../../logs/event-log.ts'
import type { Announcer } from '../../logs/console.ts'
import type { RankProcess } from '../process/rank-process.ts'
import type { ChaosPlan, Fault } from './plan.ts'

/** Milliseconds between polls of the ranks' steps. */
const POLL = 10

interface Attempt {
  readonly worldSize: number
  /** Counts from 0. */
  readonly restartCount: number
  /** The ranks of this host. */
  readonly ranks: readonly RankProcess[]
  readonly status: () => readonly RankStatus[]
}

/**
 * Injects the faults of a plan into the ranks of this host: by signals, or by code that the rank
 * evaluates (`rank/faults.ts`). On several hosts, each launcher has the same plan and injects the
 * faults of its ranks.
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

  /** Injects faults into ranks that have just started, until the returned function is called. */
  begin(attempt: Attempt): () => void {
    const timers: NodeJS.Timeout[] = []
    const after = (seconds: number, run: () => void): void => {
      timers.push(setTimeout(run, Math.min(1000 * seconds, 2 ** 31 - 1)))
    }
    for (const [i, planned] of this.#faults.entries()) {
      const { fault } = planned
      // Derive the same seed on all hosts, independent of faults injected in earlier attempts.
      const random = seededRandom(hashOf(this.#seed, i, attempt.restartCount))
      const injection = { ...attempt, fault, random, after }
      if (fault.meanSeconds !== undefined) this.#repeat(planned, injection)
      else if (fault.attempt !== attempt.restartCount) continue
      else if (fault.seconds !== undefined) {
        after(fault.seconds, () => {
          this.#inject(injection, `${fault.seconds} s after the start`)
        })
      } else this.#injectWhenDone(injection)
    }
    return () => {
      for (const timer of timers) clearTimeout(timer)
    }
  }

  #repeat(planned: PlannedFault, injection: Injection): void {
    if (planned.left <= 0) return
    injection.after(-injection.fault.meanSeconds! * Math.log(1 - injection.random()), () => {
      planned.left--
      this.#inject(injection, 'by chance')
      this.#repeat(planned, injection)
    })
  }

  #injectWhenDone(injection: Injection): void {
    const rank = chooseRank(injection)
    const { step, operations } = injection.fault
    if (!injection.ranks.some((process) => process.rank === rank)) return
    const poll = (): void => {
      const status = injection.status().find((one) => one.rank === rank)
      const done = operations === undefined ? status?.step : status?.ended
      if (done === undefined || done < (step ?? operations ?? 0)) {
        injection.after(POLL / 1000, poll)
        return
      }
      const when = operations === undefined ? `after step ${done}` : `after ${done} operations`
      this.#inject(injection, when, rank)
    }
    poll()
  }

  #inject(injection: Injection, when: string, rank = chooseRank(injection)): void {
    const { fault, after } = injection
    const process = injection.ranks.find((one) => one.rank === rank)
    if (process === undefined || process.end !== undefined) return
    const what = describe(fault)
    this.#announcer.say('chaos', `chaos: rank ${rank} ${what}, ${when}`, { rank, kind: fault.kind })
    this.#events?.record('fault-injected', { rank, kind: fault.kind, what, when })
    if (fault.kind === 'kill') process.signal(fault.signal)
    else if (fault.kind === 'stop') {
      process.signal('SIGSTOP')
      after(fault.forSeconds, () => {
        process.signal('SIGCONT')
      })
    } else if (fault.kind === 'slow') slowDown(process, fault, after)
    else process.inject(fault)
  }
}

interface PlannedFault {
  readonly fault: Fault
  left: number
}

interface Injection extends Attempt {
  readonly fault: Fault
  readonly random: () => number
  readonly after: (seconds: number, run: () => void) => void
}

/** Milliseconds of one cycle in which a slowed process is stopped and continued. */
const TURN = 40

function slowDown(
  process: RankProcess,
  { share, forSeconds }: Fault,
  after: Injection['after'],
): void {
  const end = performance.now() + 1000 * forSeconds
  const stop = (): void => {
    if (performance.now() >= end || process.end !== undefined) return
    process.signal('SIGSTOP')
    after((TURN * (1 - share)) / 1000, () => {
      process.signal('SIGCONT')
      after((TURN * share) / 1000, stop)
    })
  }
  stop()
}

function chooseRank({ fault, random, worldSize }: Injection): number {
  return fault.rank ?? Math.floor(random() * worldSize)
}

/** FNV-1a. */
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
