import { TIMED_OUT } from './failure/exit-codes.ts'
import type { JobContext } from './job.ts'

export type TimeLimit = ReturnType<typeof limitTime>

/** When the time of `--job-timeout` is over, shows the stacks of the ranks and stops the job. */
export function limitTime(
  milliseconds: number | undefined,
  { announcer, interrupts }: Pick<JobContext, 'announcer' | 'interrupts'>,
) {
  let hasEnded = false
  const stop = async (): Promise<void> => {
    const seconds = (milliseconds ?? 0) / 1000
    const text = await limit.lastWords?.()
    if (hasEnded || interrupts.stop.aborted) return
    if (text !== undefined) {
      announcer.show('stacks', `tsrun: stacks after ${seconds} s:\n${text}`, { text })
    }
    const reason = `the job has taken ${seconds} s (--job-timeout)`
    limit.exitCode = TIMED_OUT
    interrupts.interrupt({ exitCode: TIMED_OUT, reason })
  }
  const timer = milliseconds === undefined ? undefined : setTimeout(() => void stop(), milliseconds)
  const limit = {
    /** Returns the stacks of the ranks; set only while an attempt runs. */
    lastWords: undefined as (() => Promise<string>) | undefined,
    /** The exit code of the job; undefined before the time limit is reached. */
    exitCode: undefined as number | undefined,
    /** Cancels the time limit, because the job has ended. */
    end: () => {
      hasEnded = true
      clearTimeout(timer)
    },
  }
  return limit
}
