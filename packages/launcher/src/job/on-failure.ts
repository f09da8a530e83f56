import { spawnSync } from 'node:child_process'

/** What `--on-failure` tells about a failed job. */
interface JobFailure {
  readonly runId: string
  readonly exitCode: number
  readonly script: string
  readonly host: string
  /** The printed report of the last failure; '' if no rank has failed. */
  readonly report: string
}

interface Ended {
  readonly error?: NodeJS.ErrnoException
  readonly status: number | null
}

/** Milliseconds for the command or the URL. */
const LIMIT = 30_000

/**
 * Runs a command of the shell with the report as its input, or posts the facts as JSON to a URL.
 *
 * @returns what went wrong; undefined if nothing did
 */
export async function reportJobFailure(
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
    return (error as Error).message
  } finally {
    clearTimeout(timer)
  }
}
