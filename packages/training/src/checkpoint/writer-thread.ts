import { getPriority, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { isTsrError } from '@tsrun/core'
import { fileWork, type WorkRequest } from './writer.ts'

// On Linux, setPriority changes only this thread. On other systems it would change the whole process.
if (process.platform === 'linux') setPriority(Math.max(10, getPriority()))

async function serve({ name, args, reply }: WorkRequest) {
  const work = fileWork[name] as (...args: readonly unknown[]) => Promise<unknown>
  try {
    reply.postMessage({ value: await work(...args) })
  } catch (error) {
    const { message, code, errno, syscall, path } = error as NodeJS.ErrnoException
    const plain = { message, code, errno, syscall, path }
    reply.postMessage({ error: isTsrError(error) ? error.toJSON() : plain })
  }
}

parentPort!.on('message', (request: WorkRequest) => {
  void serve(request)
})
