import { setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { isTsrError } from '@tsrun/core'
import { fileWork } from './file-work.ts'
import type { WorkRequest } from './writer.ts'

// On Linux this is the priority of this thread; elsewhere it would be that of the process.
if (process.platform === 'linux') setPriority(10)

async function serve({ name, args, reply }: WorkRequest): Promise<void> {
  const work = fileWork[name] as (...args: readonly unknown[]) => Promise<unknown>
  try {
    reply.postMessage({ value: await work(...args) })
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException
    reply.postMessage({ error: isTsrError(error) ? error.toJSON() : { message, code } })
  }
}

parentPort!.on('message', (request: WorkRequest) => {
  void serve(request)
})
