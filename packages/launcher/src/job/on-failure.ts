import { spawnSync } from 'node:child_process'
import { hostname } from 'node:os'
import { isTsrError, messageOf, visibleText } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'
import type { Announcer } from '../logs/console.ts'
import { TIMED_OUT } from './failure/exit-codes.ts'
import type { Interrupts } from './process/interrupts.ts'

/** The JSON body of `--on-failure` with a URL. */
interface JobFailure {
  /** The ID of the run; '' if the job has not started. */
  readonly runId: string
  readonly exitCode: number
  readonly script: string
  readonly host: string
  /** The printed report of the last failure, or why the job could not start. */
  readonly report: string
}

export type FailureReport = ReturnType<typeof failureReport>

/** Reports the failure of a job once, to the command or the URL of `--on-failure`. */
export function failureReport(
  { restart, program, dryRun }: JobOptions,
  { env, interrupts }: { readonly env: NodeJS.ProcessEnv; readonly interrupts: Interrupts },
  announcer: Announcer,
) {
  let to = dryRun ? undefined : restart.onFailure
  let lastReport = ''
  const failure = {
    runId: '',
    script: program.script,
    showFailure(report: string): void {
      lastReport = report
    },
    /** @param error - why the job could not start; usage errors are not reported */
    async send(exitCode: number, error?: unknown): Promise<void> {
      const receiver = to
      to = undefined
      // A job that was stopped by a signal has not failed.
      const isStopped = interrupts.stop.aborted && exitCode !== TIMED_OUT
      if (receiver === undefined || exitCode === 0 || isStopped) return
      if (isTsrError(error) && error.code === 'ERR_TSR_USAGE') return
      const report = error === undefined ? lastReport : visibleText(messageOf(error))
      const { runId, script } = failure
      const facts = { runId, exitCode, script, host: hostname(), report }
      const problem = await reportJobFailure(receiver, facts, env)
      if (problem !== undefined) announcer.say('on-failure', `--on-failure: ${problem}`)
    },
  }
  return failure
}

/** Time limit in milliseconds for the command or the HTTP request. */
const LIMIT = 30_000

/**
 * Runs a shell command with the report as its input, or posts the facts as JSON to a URL.
 *
 * @returns a description of the problem, if there was one
 */
async function reportJobFailure(
  to: string,
  failure: JobFailure,
  env: NodeJS.ProcessEnv,
): Promise<string | undefined> {
  const limit = new AbortController()
  const timer = setTimeout(() => {
    limit.abort(new Error(`no answer within ${LIMIT / 1000} s`))
  }, LIMIT)
  try {
    if (/^https?:/.test(to)) {
      const { ok, status } = await fetch(to, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(failure),
        signal: limit.signal,
      })
      return ok ? undefined : `status ${status}`
    }
    const { runId, exitCode, script, report } = failure
    const facts = { TSRUN_RUN_ID: runId, TSRUN_EXIT_CODE: String(exitCode), TSRUN_SCRIPT: script }
    const { error, status } = spawnSync(to, {
      shell: true,
      env: { ...env, ...facts },
      input: report,
      stdio: ['pipe', 'inherit', 'inherit'],
      timeout: LIMIT,
    })
    // The command may ignore the report, so EPIPE is not a problem.
    const code = (error as NodeJS.ErrnoException | undefined)?.code
    if (error !== undefined && code !== 'EPIPE') return error.message
    return status === 0 ? undefined : `exit code ${status ?? 'unknown'}`
  } catch (error) {
    return reasonOf(error)
  } finally {
    clearTimeout(timer)
  }
}

/** `fetch` puts the reason of a failure into the cause of its error. */
function reasonOf(error: unknown): string {
  const { message, cause } = error as Error
  const { code, message: reason } = Object(cause) as NodeJS.ErrnoException
  const why = reason || code
  return why === undefined ? message : `${message}: ${why}`
}
