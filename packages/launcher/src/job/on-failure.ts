import { spawnSync } from 'node:child_process'
import { hostname } from 'node:os'
import { isTsrError, messageOf, visibleText } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'
import type { Announcer } from '../logs/console.ts'
import { TIMED_OUT } from './failure/exit-codes.ts'
import type { JobWatcher } from './job.ts'
import type { Interrupts } from './process/interrupts.ts'

/** What `--on-failure` tells about a failed job. */
interface JobFailure {
  /** '' if the job has not started. */
  readonly runId: string
  readonly exitCode: number
  readonly script: string
  readonly host: string
  /** The printed report of the last failure, or why the job could not start. */
  readonly report: string
}

interface Ended {
  readonly error?: NodeJS.ErrnoException
  readonly status: number | null
}

interface Surroundings {
  readonly env: NodeJS.ProcessEnv
  readonly interrupts: Interrupts
}

/** Reports the failure of a job once, as `--on-failure` says. */
export class FailureReport implements JobWatcher {
  runId = ''
  script: string
  #report = ''
  #to: string | undefined
  readonly #context: Surroundings
  readonly #announcer: Announcer

  constructor(
    { restart, program, dryRun }: JobOptions,
    context: Surroundings,
    announcer: Announcer,
  ) {
    this.#to = dryRun ? undefined : restart.onFailure
    this.script = program.script
    this.#context = context
    this.#announcer = announcer
  }

  showFailure(report: string): void {
    this.#report = report
  }

  /** @param error - why the job could not start; nothing is reported of a usage error */
  async send(exitCode: number, error?: unknown): Promise<void> {
    const to = this.#to
    this.#to = undefined
    const { env, interrupts } = this.#context
    // A signal is no failure of the job.
    const isStopped = interrupts.stop.aborted && exitCode !== TIMED_OUT
    if (to === undefined || exitCode === 0 || isStopped) return
    if (isTsrError(error) && error.code === 'ERR_TSR_USAGE') return
    const report = error === undefined ? this.#report : visibleText(messageOf(error))
    const { runId, script } = this
    const facts = { runId, exitCode, script, host: hostname(), report }
    const problem = await reportJobFailure(to, facts, env)
    if (problem !== undefined) this.#announcer.say('on-failure', `--on-failure: ${problem}`)
  }
}

/** Milliseconds for the command or the URL. */
const LIMIT = 30_000

/**
 * Runs a command of the shell with the report as its input, or posts the facts as JSON to a URL.
 *
 * @returns what went wrong; undefined if nothing did
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
    const { error, status }: Ended = spawnSync(to, {
      shell: true,
      env: { ...env, ...facts },
      input: report,
      stdio: ['pipe', 'inherit', 'inherit'],
      timeout: LIMIT,
    })
    // A command need not read the report.
    if (error !== undefined && error.code !== 'EPIPE') return error.message
    return status === 0 ? undefined : `exit code ${status ?? 'unknown'}`
  } catch (error) {
    return reasonOf(error)
  } finally {
    clearTimeout(timer)
  }
}

/** The message of an error of `fetch` says only that it failed, and its cause why. */
function reasonOf(error: unknown): string {
  const { message, cause } = error as Error
  const { code, message: reason } = Object(cause) as NodeJS.ErrnoException
  const why = reason || code
  return why === undefined ? message : `${message}: ${why}`
}
