import { readFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'

/**
 * Starts a thread with a program of `threads/`. The thread does not keep this process alive. The program
 * is passed as text, because a thread without the environment cannot read Yarn's archive.
 */
export function startThread(name: 'watch' | 'relay', workerData?: unknown): Worker {
  const program = readFileSync(new URL(`${name}.cjs`, import.meta.url), 'utf8')
  const thread = new Worker(program, { eval: true, workerData, execArgv: [], env: {} })
  // Ignore errors: without the thread, only stacks and fault injection are unavailable.
  thread.on('error', () => undefined).unref()
  return thread
}
