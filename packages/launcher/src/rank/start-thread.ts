import { readFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'

/**
 * Starts a thread on a program of `threads/`, which ends with this process. The program is started from its
 * text: a thread without the environment of its process does not find a file in the archive of Yarn.
 */
export function startThread(name: 'watch' | 'relay', workerData?: unknown): Worker {
  const program = readFileSync(new URL(`${name}.cjs`, import.meta.url), 'utf8')
  const thread = new Worker(program, { eval: true, workerData, execArgv: [], env: {} })
  // Without the thread a rank only cannot tell its stack, or inject a fault.
  thread.on('error', () => undefined).unref()
  return thread
}
