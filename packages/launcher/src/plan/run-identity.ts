import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { tsrError } from '@tsrun/core'
import type { HostOptions } from '../args/host-options.ts'

export interface RunIdentity {
  /** Names the job in logs and directories; sorts by start time, for example 20261121-153012-9f3a1c. */
  readonly runId: string
  /** Secret of the job: at least 128, by default 256 random bits, hexadecimal. */
  readonly token: string
}

/**
 * A run id that no other run has, and the token: that of `--token-file`, else TSRUN_TOKEN, else, on
 * a single host, a random one.
 *
 * @throws ERR_TSR_USAGE when the token is no hexadecimal text of 32 digits or more;
 * ERR_TSR_TOKEN_MISSING
 */
export function makeRunIdentity(
  env: NodeJS.ProcessEnv,
  { nnodes, tokenFile }: Pick<HostOptions, 'nnodes' | 'tokenFile'>,
  now = new Date(),
): RunIdentity {
  const [date, time] = now.toISOString().replaceAll(/[-:]/g, '').split(/[T.]/) as [string, string]
  return {
    runId: `${date}-${time}-${randomBytes(3).toString('hex')}`,
    token: givenToken(env, tokenFile) ?? makeToken(nnodes),
  }
}

function givenToken(env: NodeJS.ProcessEnv, file: string | undefined): string | undefined {
  const token = file === undefined ? env['TSRUN_TOKEN'] : readToken(file)
  if (token === undefined || (token === '' && file === undefined)) return undefined
  if (/^([0-9a-f]{2}){16,}$/i.test(token)) return token
  const what =
    file === undefined ? 'TSRUN_TOKEN is not' : `The file ${file} (--token-file) holds no`
  const article = file === undefined ? ' a' : ''
  throw usage(`${what}${article} hexadecimal secret of at least 32 digits (an even number)`)
}

function readToken(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw usage(`The token file cannot be read: ${(cause as Error).message}`, cause)
  }
}

function makeToken(nnodes: number): string {
  if (nnodes > 1) throw tsrError('ERR_TSR_TOKEN_MISSING', { nnodes })
  return randomBytes(32).toString('hex')
}

function usage(problem: string, cause?: unknown): Error {
  return tsrError('ERR_TSR_USAGE', { problem }, { cause })
}
