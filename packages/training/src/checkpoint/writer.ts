import { once } from 'node:events'
import { MessageChannel, Worker, type MessagePort, type Transferable } from 'node:worker_threads'
import { reviveTsrError, type SerializedTsrError } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'
import { fileWork } from './file-work.ts'

type FileWork = typeof fileWork

/** Asks the thread to call a function of `fileWork`. */
export interface WorkRequest {
  readonly name: keyof FileWork
  readonly args: readonly unknown[]
  readonly reply: MessagePort
}

type Reply =
  | { readonly value: unknown }
  | { readonly error: SerializedTsrError | { readonly message: string; readonly code?: string } }

/** Calls a function of `fileWork`. */
export type Writer = <K extends keyof FileWork>(
  name: K,
  args: Parameters<FileWork[K]>,
  transferred?: readonly Transferable[],
) => Promise<Awaited<ReturnType<FileWork[K]>>>

/** Calls the functions in this thread. */
export const inThisThread: Writer = (name, args) =>
  (fileWork[name] as unknown as (...given: typeof args) => ReturnType<Writer>)(...args) as never

let thread: Worker | undefined

/** Starts the thread that writes checkpoints. It lives as long as the process, which it does not prolong. */
export function startWriter(): Worker {
  if (thread !== undefined) return thread
  const started = new Worker(new URL('dist/check-thread.js', packageFolder), { execArgv: [] })
  thread = started
  started.unref()
  const forget = () => {
    if (thread === started) thread = undefined
  }
  // The calls in progress fail, because their ports close.
  started.on('error', forget).on('exit', forget)
  return started
}

/** Calls the functions in another thread of low priority, beside training. */
export const inWriter: Writer = async (name, args, transferred = []) => {
  const { port1, port2 } = new MessageChannel()
  const request: WorkRequest = { name, args, reply: port2 }
  startWriter().postMessage(request, [port2, ...transferred])
  const ended = once(port1, 'close').then(() => {
    throw new Error('the thread that writes checkpoints has ended')
  })
  try {
    const [reply] = (await Promise.race([once(port1, 'message'), ended])) as [Reply]
    if ('value' in reply) return reply.value as never
    const { error } = reply
    throw 'facts' in error ? reviveTsrError(error) : Object.assign(new Error(error.message), error)
  } finally {
    ended.catch(() => undefined)
    port1.close()
  }
}
