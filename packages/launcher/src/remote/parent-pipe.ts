import type { Readable } from 'node:stream'
import type { Interrupts } from '../job/process/interrupts.ts'
import { lineSplitter } from '../logs/lines.ts'

/** Set for a launcher that `tsrun hosts` started. */
export const PARENT_PIPE = 'TSRUN_PARENT_PIPE'

/**
 * Handles the signals that `tsrun hosts` sends as lines on standard input. The end of the input stops
 * the job, so that nothing keeps running on a host after its connection is lost.
 */
export function watchParentPipe(
  input: Readable,
  env: NodeJS.ProcessEnv,
  interrupts: Interrupts,
): void {
  if (env[PARENT_PIPE] === undefined) return
  // Do not let ranks and their children inherit it.
  Reflect.deleteProperty(env, PARENT_PIPE)
  const splitter = lineSplitter()
  input.on('data', (chunk: Buffer) => {
    for (const { text } of splitter.push(chunk)) {
      if (/^SIG[A-Z0-9]+$/.test(text)) process.kill(process.pid, text)
    }
  })
  input.on('error', () => undefined)
  input.on('close', () => {
    interrupts.interrupt({ exitCode: 129, reason: 'the connection to this host is lost' })
  })
}
