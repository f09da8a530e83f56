import { setTimeout as pause } from 'node:timers/promises'
import type { Job } from './job.ts'
import { runLife, type Surroundings } from './life.ts'
import { attemptDirectory } from './logs/rank-files.ts'
import { describeFailure } from './report/failure.ts'
import { failureText } from './report/failure-text.ts'
import { watchMemoryEvents } from './report/memory-events.ts'
import type { RankOutcome } from './report/outcome.ts'
import { findRootCause } from './report/root-cause.ts'
import { rankUsage, summaryText } from './report/summary.ts'
import type { Interruption } from './terminate/interrupts.ts'

/**
 * Runs a job to its end: all ranks together, as often as the restart budget allows.
 *
 * @returns the exit code of the launcher
 */
export async function runJob(job: Job, around: Surroundings): Promise<number> {
  const { options, identity } = job
  const { announcer, interrupts } = around
  announceInterrupts(job, around)
  for (let restartCount = 0; ; restartCount++) {
    const memory = watchMemoryEvents()
    const logs =
      options.logDir === undefined
        ? undefined
        : attemptDirectory(options.logDir, identity.runId, restartCount)
    const { outcomes, interrupted } = await runLife(job, restartCount, logs, around)
    if (interrupted) return (interrupts.stop.reason as Interruption).exitCode

    showSummary(job, outcomes, around)
    const cause = findRootCause(outcomes)
    if (cause === undefined) return 0
    const failure = describeFailure(cause, outcomes, memory(), logs)
    announcer.show('failure', failureText(failure, job.colour.stderr), failure)

    const last = restartCount === options.maxRestarts || interrupts.stop.aborted
    if (last) return failure.jobExitCode
    const number = `restart ${restartCount + 1} of ${options.maxRestarts}`
    announcer.say('restart', `starting all ranks again (${number})`, {
      restartCount: restartCount + 1,
    })
    await pauseBeforeRestart(restartCount, interrupts.stop)
  }
}

function announceInterrupts({ options }: Job, { announcer, interrupts }: Surroundings): void {
  interrupts.stop.addEventListener('abort', () => {
    const { reason } = interrupts.stop.reason as Interruption
    if (reason === undefined) return
    const hint = reason === 'Ctrl-C' ? '; Ctrl-C again: kill them now' : ''
    const grace = `SIGKILL after ${options.grace / 1000} s`
    announcer.say('interrupt', `${reason}: stopping the ranks (${grace}${hint})`, { reason })
  })
  interrupts.kill.addEventListener('abort', () => {
    announcer.say('kill', 'killing the ranks now')
  })
}

/** Twice as long each time, from 0.1 s to 10 s: what failed may need a moment to recover. */
async function pauseBeforeRestart(restartCount: number, stop: AbortSignal): Promise<void> {
  const milliseconds = Math.min(10_000, 100 * 2 ** restartCount)
  await pause(milliseconds, undefined, { signal: stop }).catch(() => undefined)
}

function showSummary(
  { options }: Job,
  outcomes: readonly RankOutcome[],
  { announcer }: Surroundings,
): void {
  const usages = outcomes.map(rankUsage)
  const wanted = options.summary && options.nproc > 1 && options.logFormat === 'pretty'
  announcer.show('summary', wanted ? summaryText(usages) : '', { ranks: usages })
}
