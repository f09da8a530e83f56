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

export type Chaos = ReturnType<typeof createChaos>

/**
 * Injects the faults of a plan into the ranks of this host: by signals, or by code that the rank
 * evaluates (`rank/faults.ts`). On several hosts, each launcher has the same plan and injects the
 * faults of its ranks.
 */
export function createChaos(
  { seed, faults }: ChaosPlan,
  announcer: Announcer,
  events: EventLog | undefined,
) {
  const plan = faults.map((fault): PlannedFault => ({ fault, left: fault.times ?? Infinity }))

  const inject = (injection: Injection, when: string, rank = chooseRank(injection)): void => {
    const { fault, after } = injection
    const { kind } = fault
    const process = injection.ranks.find((one) => one.rank === rank)
    if (process === undefined || process.end !== undefined) return
    const what = describe(fault)
    announcer.say('chaos', `chaos: rank ${rank} ${what}, ${when}`, { rank, kind })
    events?.record('fault-injected', { rank, kind, what, when })
    if (kind === 'kill') process.signal(fault.signal)
    else if (kind === 'stop') {
      process.signal('SIGSTOP')
      after(fault.forSeconds, () => {
        process.signal('SIGCONT')
      })
    } else if (kind === 'slow') slowDown(process, fault, after)
    else process.inject(fault)
  }

  const repeat = (planned: PlannedFault, injection: Injection): void => {
    if (planned.left <= 0) return
    injection.after(-injection.fault.meanSeconds! * Math.log(1 - injection.random()), () => {
      planned.left--
      inject(injection, 'by chance')
      repeat(planned, injection)
    })
  }

  const injectWhenDone = (injection: Injection): void => {
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
      inject(injection, when, rank)
    }
    poll()
  }

  return {
    /** Injects faults into ranks that have just started, until the returned function is called. */
    begin(attempt: Attempt): () => void {
      const timers: NodeJS.Timeout[] = []
      const after = (seconds: number, run: () => void): void => {
        timers.push(setTimeout(run, Math.min(1000 * seconds, 2 ** 31 - 1)))
      }
      for (const [i, planned] of plan.entries()) {
        const { fault } = planned
        // Derive the same seed on all hosts, independent of faults injected in earlier attempts.
        const random = seededRandom(hashOf(seed, i, attempt.restartCount))
        const injection = { ...attempt, fault, random, after }
        if (fault.meanSeconds !== undefined) repeat(planned, injection)
        else if (fault.attempt !== attempt.restartCount) continue
        else if (fault.seconds !== undefined) {
          after(fault.seconds, () => {
            inject(injection, `${fault.seconds} s after the start`)
          })
        } else injectWhenDone(injection)
      }
      return () => {
        for (const timer of timers) clearTimeout(timer)
      }
    },
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
