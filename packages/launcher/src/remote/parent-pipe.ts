import type { Readable } from 'node:stream'
import type { Interrupts } from '../processes/interrupts.ts'

/** Set for a launcher that `tsrun hosts` has started. */
export const PARENT_PIPE = 'TSRUN_PARENT_PIPE'

/**
 * On a host that `tsrun hosts` has started this launcher on: signals arrive as lines on the standard input.
 * When that ends, so does the job: nothing is left on a host whose connection is lost.
 */
export function watchParentPipe(
  input: Readable,
  env: NodeJS.ProcessEnv,
  interrupts: Interrupts,
): void {
  if (env[PARENT_PIPE] === undefined) return
  // The ranks, and what they start, have no such pipe.
  Reflect.deleteProperty(env, PARENT_PIPE)
  let rest = ''
  input.setEncoding('utf8')
  input.on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (/^SIG[A-Z0-9]+$/.test(line)) process.kill(process.pid, line)
  })
  input.on('error', () => undefined)
  input.on('close', () => {
    interrupts.interrupt({ exitCode: 129, reason: 'the connection to this host is lost' })
  })
}
