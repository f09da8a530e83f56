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
/** Fails the calls in progress, one function each. */
const failing = new Set<(reason: unknown) => void>()

/** What Node's permission model lets this process do, also in its threads. */
const permissions = process.execArgv.filter((arg) =>
  /^--((experimental-)?permission$|allow-)/.test(arg),
)

/** Starts the thread that writes checkpoints. It lives as long as the process, which it does not prolong. */
export function startWriter(): Worker {
  if (thread !== undefined) return thread
  const started = new Worker(new URL('dist/check-thread.js', packageFolder), {
    execArgv: permissions,
  })
  thread = started
  started.unref()
  const fail = (reason: unknown) => {
    if (thread === started) thread = undefined
    for (const each of failing) each(reason)
  }
  started.on('error', fail).on('exit', () => {
    fail(new Error('the thread that writes checkpoints has ended'))
  })
  return started
}

/** Calls the functions in another thread of low priority, beside training. */
export const inWriter: Writer = async (name, args, transferred = []) => {
  const { port1, port2 } = new MessageChannel()
  const request: WorkRequest = { name, args, reply: port2 }
  startWriter().postMessage(request, [port2, ...transferred])
  let fail!: (reason: unknown) => void
  const failed = new Promise<never>((_, reject) => (fail = reject))
  failing.add(fail)
  try {
    const [reply] = (await Promise.race([once(port1, 'message'), failed])) as [Reply]
    if ('value' in reply) return reply.value as never
    const { error } = reply
    throw 'facts' in error ? reviveTsrError(error) : Object.assign(new Error(error.message), error)
  } finally {
    failing.delete(fail)
    port1.close()
  }
}
