import { randomBytes } from 'node:crypto'
import { tsrError } from '@tsrun/core'

export interface RunIdentity {
  /** Names the job in logs and directories; sorts by start time, for example 20261121-153012-9f3a1c. */
  readonly runId: string
  /** Secret of the job: at least 128, by default 256 random bits, hexadecimal. */
  readonly token: string
}

/**
 * A run id that no other run has, and the token: TSRUN_TOKEN if it is set, else a random one.
 *
 * @throws ERR_TSR_USAGE when TSRUN_TOKEN is no hexadecimal text of 32 digits or more
 */
export function makeRunIdentity(env: NodeJS.ProcessEnv, now = new Date()): RunIdentity {
  const given = env['TSRUN_TOKEN']
  if (given !== undefined && !/^([0-9a-f]{2}){16,}$/i.test(given)) {
    throw tsrError('ERR_TSR_USAGE', {
      problem: 'TSRUN_TOKEN is not a hexadecimal secret of at least 32 digits (an even number)',
    })
  }
  const [date, time] = now.toISOString().replaceAll(/[-:]/g, '').split(/[T.]/) as [string, string]
  return {
    runId: `${date}-${time}-${randomBytes(3).toString('hex')}`,
    token: given ?? randomBytes(32).toString('hex'),
  }
}
