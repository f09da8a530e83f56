import { tsrError, type TsrError } from '@tsrun/core'
import { failureText } from '../report/failure-text.ts'
import type { Failure } from '../report/failure.ts'

/** The failure report of a job as an error: its cause is that of the rank which failed first. */
export function rankError(failure: Failure): TsrError {
  const { rank, worldSize, ended, error, what, code, explanation, jobExitCode } = failure
  const first = what ?? failure.stderr.at(-1)
  const problem = [first === undefined ? ended : `${ended}: ${first}`, explanation]
    .filter((part) => part !== undefined)
    .join('; ')
    .replace(/\.$/, '')
  const report = failureText(failure, false)
  const facts = { rank, worldSize, problem, exitCode: jobExitCode, report }
  if (error === undefined) return tsrError('ERR_TSR_RANK_FAILED', facts)
  const cause = Object.assign(new Error(first), code === undefined ? {} : { code })
  cause.stack = error
  return tsrError('ERR_TSR_RANK_FAILED', facts, { cause })
}

/** Of a rank that ended well without having come to the end of its function. */
export function noValueError(rank: number, worldSize: number): TsrError {
  const problem = 'ended with exit code 0 before its function returned'
  return tsrError('ERR_TSR_RANK_FAILED', { rank, worldSize, problem, exitCode: 0, report: '' })
}
