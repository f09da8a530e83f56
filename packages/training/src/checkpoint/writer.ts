import { once, setMaxListeners } from 'node:events'
import { MessageChannel, Worker, type MessagePort, type Transferable } from 'node:worker_threads'
import { reviveTsrError, type SerializedTsrError } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'
import { makeUnfinished, prune, publish } from './folders.ts'
import { writeChunks } from './safetensors/chunks.ts'

/** The functions of a save that use the file system. They take and return values that can be cloned. */
export const fileWork = { makeUnfinished, writeChunks, publish, prune }

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

/** The writer thread, and a signal that rejects pending calls when the thread ends. */
let running: { readonly worker: Worker; readonly ended: AbortSignal } | undefined

/** Returns the flags of Node's permission model. Threads with their own `execArgv` do not inherit them. */
function permissions() {
  if (!('permission' in process)) return []
  const { execArgv } = process
  return execArgv.filter((arg, i) => PERMISSION.test(arg) || TAKES_PATH.test(execArgv[i - 1] ?? ''))
}

const PERMISSION =
  /^--((experimental[-_])?permission|allow[-_](fs[-_](read|write)|addons|child[-_]process|wasi|worker|net|inspector))(=|$)/
const TAKES_PATH = /^--allow[-_]fs[-_](read|write)$/

/** Starts the thread that writes checkpoints. It ends with the process and does not keep it alive. */
export function startWriter() {
  if (running !== undefined) return running
  const worker = new Worker(new URL('dist/writer-thread.js', packageFolder), {
    execArgv: permissions(),
  })
  const ending = new AbortController()
  // Each pending call adds a listener, so disable the warning about many listeners.
  setMaxListeners(0, ending.signal)
  const started = { worker, ended: ending.signal }
  running = started
  // The port of a call in progress keeps the process alive.
  worker.unref()
  const end = (reason: unknown) => {
    if (running === started) running = undefined
    ending.abort(reason)
  }
  worker.on('error', end).on('exit', () => {
    end(new Error('the thread that writes checkpoints has ended'))
  })
  return started
}

/** Calls the functions in another thread of low priority, concurrently with training. */
export const inWriter: Writer = async (name, args, transferred = []) => {
  const { worker, ended } = startWriter()
  const { port1, port2 } = new MessageChannel()
  const request: WorkRequest = { name, args, reply: port2 }
  try {
    worker.postMessage(request, [port2, ...transferred])
    const [reply] = (await once(port1, 'message', { signal: ended })) as [Reply]
    if ('value' in reply) return reply.value as never
    const { error } = reply
    throw 'facts' in error ? reviveTsrError(error) : Object.assign(new Error(error.message), error)
  } catch (error) {
    throw ended.aborted ? ended.reason : error
  } finally {
    port1.close()
  }
}
