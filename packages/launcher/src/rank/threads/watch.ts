// This thread of a rank serves the launcher while the main thread is busy. It sends the stack of the
// main thread on request and injects faults into it (`--chaos`). If `dies` is true, it kills this process
// and its process group when the launcher ends.
import type inspector from 'node:inspector'
import { Socket } from 'node:net'
import { workerData } from 'node:worker_threads'
import { INJECT } from '../../protocol/channel.ts'

/** Milliseconds for the main thread to answer. */
const ANSWER_TIME = 1000

const { fd, dies } = workerData as { readonly fd: number; readonly dies: boolean }
const pipe = new Socket({ fd, readable: true, writable: true })
const end = (): void => {
  // Windows has no process groups.
  if (dies) process.kill(process.platform === 'win32' ? process.pid : -process.pid, 'SIGKILL')
}
pipe.on('error', end).on('end', end)
let rest = ''
pipe.setEncoding('utf8').on('data', (text: string) => {
  const lines = (rest + text).split('\n')
  rest = lines.pop()!
  for (const line of lines) {
    if (line.startsWith('{')) inject(line)
    else ask(Number(line))
  }
})

/** Opens the inspector only when needed, because it takes time to load. */
function openSession(): inspector.Session {
  const { Session } = process.getBuiltinModule('node:inspector')
  return new Session()
}

/** @param fault - JSON */
function inject(fault: string): void {
  const session = openSession()
  session.connectToMainThread()
  const expression = `globalThis[Symbol.for("${INJECT}")]?.(${fault})`
  session.post('Runtime.evaluate', { expression }, () => {
    session.disconnect()
  })
}

/**
 * The main thread evaluates this function as an interrupt: V8 interrupts even loops and Atomics.wait.
 * The function is sent as source text, so it must not use this module.
 */
const question = (): string | undefined => {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 100
  const { stack } = new Error()
  Error.stackTraceLimit = limit
  return stack
}

function ask(id: number): void {
  const session = openSession()
  let isDone = false
  const answer = (stack?: string): void => {
    if (isDone) return
    isDone = true
    clearTimeout(timer)
    session.disconnect()
    pipe.write(`${JSON.stringify({ kind: 'stack', id, stack })}\n`)
  }
  const timer = setTimeout(answer, ANSWER_TIME)
  try {
    session.connectToMainThread()
    const expression = `(${question.toString()})()`
    session.post('Runtime.evaluate', { expression }, (_, reply) => {
      const value: unknown = (reply as typeof reply | undefined)?.result.value
      answer(typeof value === 'string' ? value : undefined)
    })
  } catch {
    answer()
  }
}
