import { seededRandom } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { EventLog } from '../../logs/event-log.ts'
import type { Announcer } from '../../logs/console.ts'
import type { RankProcess } from '../process/rank-process.ts'
import { describeFault, type ChaosPlan, type Fault } from './plan.ts'

/** Milliseconds between polls of the ranks' steps. */
const POLL = 10

interface Attempt {
  readonly worldSize: number
  readonly restartCount: number
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
  return {
    /** Injects faults into ranks that have just started, until the returned function is called. */
    begin({ worldSize, restartCount, ranks, status }: Attempt): () => void {
      const timers: NodeJS.Timeout[] = []
      const after = (seconds: number, run: () => void): void => {
        timers.push(setTimeout(run, Math.min(1000 * seconds, 2 ** 31 - 1)))
      }

      const inject = (fault: Fault, rank: number, when: string): void => {
        const { kind } = fault
        const process = ranks.find((one) => one.rank === rank)
        if (process === undefined || process.end !== undefined) return
        const what = describeFault(fault)
        announcer.say('chaos', `chaos: rank ${rank} gets the fault ${what}, ${when}`, {
          rank,
          kind,
        })
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

      const injectWhenDone = (fault: Fault, rank: number): void => {
        const { step, operations } = fault
        if (!ranks.some((process) => process.rank === rank)) return
        const poll = (): void => {
          const state = status().find((one) => one.rank === rank)
          const done = operations === undefined ? state?.step : state?.ended
          if (done === undefined || done < (step ?? operations ?? 0)) {
            after(POLL / 1000, poll)
            return
          }
          const when = operations === undefined ? `after step ${done}` : `after ${done} operations`
          inject(fault, rank, when)
        }
        poll()
      }

      for (const [i, fault] of faults.entries()) {
        const { seconds, meanSeconds } = fault
        // Derive one seed for each fault and attempt, so that all hosts choose the same ranks and times.
        const random = seededRandom(hashOf(seed, i, restartCount))
        const chooseRank = (): number => fault.rank ?? Math.floor(random() * worldSize)
        const repeat = (mean: number): void => {
          after(-mean * Math.log(1 - random()), () => {
            inject(fault, chooseRank(), 'by chance')
            repeat(mean)
          })
        }
        if (meanSeconds !== undefined) repeat(meanSeconds)
        else if (fault.attempt !== restartCount) continue
        else if (seconds === undefined) injectWhenDone(fault, chooseRank())
        else {
          after(seconds, () => {
            inject(fault, chooseRank(), `${seconds} s after the start`)
          })
        }
      }
      return () => {
        timers.forEach(clearTimeout)
      }
    },
  }
}

/** Milliseconds of one cycle in which a slowed process is stopped and continued. */
const TURN = 40

function slowDown(
  process: RankProcess,
  { share, forSeconds }: Fault,
  after: (seconds: number, run: () => void) => void,
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

/** The FNV-1a hash of the numbers. */
function hashOf(...numbers: readonly number[]): number {
  return numbers.reduce((hash, number) => Math.imul(hash ^ number, 16777619), 2166136261)
}
