import { TIMED_OUT } from './failure/exit-codes.ts'
import type { JobContext } from './job.ts'

/** The time limit of `--job-timeout`. */
export interface TimeLimit {
  /** Returns the stacks of the ranks; set only while an attempt runs. */
  lastWords: (() => Promise<string>) | undefined
  /** The exit code of the job; undefined before the time limit is reached. */
  readonly exitCode: number | undefined
  /** Cancels the time limit, because the job has ended. */
  end(): void
}

/** When the time is over, shows the stacks of the ranks and stops the job. */
export function limitTime(
  milliseconds: number | undefined,
  { announcer, interrupts }: Pick<JobContext, 'announcer' | 'interrupts'>,
): TimeLimit {
  let hasEnded = false
  let exitCode: number | undefined
  const stop = async (): Promise<void> => {
    const seconds = (milliseconds ?? 0) / 1000
    const text = await limit.lastWords?.()
    if (hasEnded || interrupts.stop.aborted) return
    if (text !== undefined) {
      announcer.show('stacks', `tsrun: stacks after ${seconds} s:\n${text}`, { text })
    }
    const reason = `the job has taken ${seconds} s (--job-timeout)`
    exitCode = TIMED_OUT
    interrupts.interrupt({ exitCode, reason })
  }
  const timer = milliseconds === undefined ? undefined : setTimeout(() => void stop(), milliseconds)
  const limit: TimeLimit = {
    lastWords: undefined,
    get exitCode() {
      return exitCode
    },
    end: () => {
      hasEnded = true
      clearTimeout(timer)
    },
  }
  return limit
}
